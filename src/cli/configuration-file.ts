import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import type { AgentConfiguration } from '../agent/agent-configuration.ts';
import { readConfiguration } from '../agent/configuration.ts';
import { FairleadError, fileProblem } from '../lib/errors.ts';
import { readWrittenJson } from '../lib/written-json.ts';

/** Reads the configuration in a file. Throws FairleadError that names the file, or each wrong field and its valid values. */
export function readConfigurationFile(file: string): AgentConfiguration {
  let document: unknown;
  try {
    const text = readFileSync(file, 'utf8');
    document = readWrittenJson(text) ?? parse(text);
  } catch (error) {
    throw new FairleadError(`cannot read ${file}: ${fileProblem(error)}`, {
      op: 'read configuration',
      code: 'bad-config',
      object: file,
      cause: error,
    });
  }
  return readConfiguration(document);
}
