import { availableModes } from '../agent/dataplanes.ts';
import { openCluster } from '../cluster/cluster-access.ts';
import { readModeRequest } from '../cluster/mode-change.ts';
import { MODE_DIFFERENCES } from '../dataplane/mode-differences.ts';
import { createMutex } from '../lib/semaphore.ts';
import type { Operation } from './page-server.ts';

/** A mode, and how it differs from others for clients and servers. */
export interface ModeView {
  readonly mode: string;
  readonly differences: readonly string[];
}

/** The operations of the page's comparison of modes: GET modes (ModeView[]) and POST mode ({mode} → NodeMode[]). */
export function modeOperations(name: string): Map<string, Operation> {
  const turns = createMutex();
  return new Map<string, Operation>([
    [
      'GET modes',
      async () =>
        availableModes().map((mode): ModeView => {
          const differences = MODE_DIFFERENCES.filter(({ modes }) => modes.includes(mode));
          return { mode, differences: differences.map(({ text }) => text) };
        }),
    ],
    [
      'POST mode',
      async (body) => {
        const mode = readModeRequest(body);
        return await turns.run(async () => (await openCluster(name)).changeMode(mode));
      },
    ],
  ]);
}
