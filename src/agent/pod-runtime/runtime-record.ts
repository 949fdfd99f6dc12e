import { join } from 'node:path';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { isRunning, type ProcessIdentity } from '../../kernel/process-identity.ts';
import { NEW_RECORD, type ProcessRecord } from '../../kernel/process-record.ts';
import { replaceFile } from '../../kernel/replace-file.ts';

const FILE = 'pod-runtime.json';

/** Returns the agent's record of its pod runtime; that of a new process if there is none, or it is damaged. */
export function readRuntimeRecord(stateDir: string): ProcessRecord {
  const text = readOptionalFile(join(stateDir, FILE));
  if (text === null) return NEW_RECORD;
  try {
    return { ...NEW_RECORD, ...(JSON.parse(text) as Partial<ProcessRecord>) };
  } catch (error) {
    // Written in part before a crash of the machine.
    if (error instanceof SyntaxError) return NEW_RECORD;
    throw error;
  }
}

/** Returns the pod runtime of a node, if it is running. */
export function runningRuntime(stateDir: string): ProcessIdentity | null {
  const { identity } = readRuntimeRecord(stateDir);
  return isRunning(identity) ? identity : null;
}

export function writeRuntimeRecord(stateDir: string, record: ProcessRecord): void {
  replaceFile(join(stateDir, FILE), `${JSON.stringify(record)}\n`);
}
