import { readModesQuestion } from '../cluster/agent-client.ts';
import { openCluster } from '../cluster/cluster-access.ts';
import { readModeRequest } from '../cluster/mode-change.ts';
import { createMutex } from '../lib/semaphore.ts';
import type { Operation } from './page-server.ts';

/**
 * The operations of the page's comparison of modes: POST modes (ModesQuestion → ModeComparison) and POST mode ({mode} →
 * NodeMode[]).
 */
export function modeOperations(name: string): Map<string, Operation> {
  const turns = createMutex();
  return new Map<string, Operation>([
    [
      'POST modes',
      async (body) => {
        const question = readModesQuestion(body);
        return await (await openCluster(name)).compareModes(question);
      },
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
