import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { saveEvidence } from '../cluster/evidence.ts';
import { requireCluster } from '../cluster/state.ts';
import type { Output } from './command.ts';
import { renderError } from './error-text.ts';

/** Prints the ends of the pods' logs and the last events, and keeps all of them; a failure is only reported. */
export async function keepEvidence(name: string, folder: string | null, output: Output): Promise<void> {
  try {
    const to = folder ?? mkdtempSync(join(tmpdir(), `fairlead-${name}-`));
    output.err(await saveEvidence(requireCluster(name), to));
    output.err(`fairlead: logs and events are kept in ${to}\n`);
  } catch (error) {
    output.err(renderError(error));
  }
}
