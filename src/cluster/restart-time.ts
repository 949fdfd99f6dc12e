import { statSync } from 'node:fs';
import { type Clock, pause } from '../lib/clock.ts';
import { containersFolder } from '../runtime/oci-runtime.ts';

const SECOND_MS = 1000;

/**
 * Resolves to the time, in milliseconds since 1970, from which on containers count as started again. `stateFolders`: those of
 * the nodes. The API writes whole seconds: if a container of an earlier run was created or removed in this second, as by a
 * crash right after a start, resolves only in the next one.
 */
export async function restartTime(stateFolders: readonly string[], clock: Clock): Promise<number> {
  const now = clock.now();
  const second = Math.floor(now / SECOND_MS);
  const isAmbiguous = stateFolders.some(
    (folder) => Math.floor(changedAt(containersFolder(folder)) / SECOND_MS) >= second,
  );
  if (!isAmbiguous) return now;
  await pause(clock, (second + 1) * SECOND_MS - now);
  return clock.now();
}

/** Returns when an entry of the folder was last made or removed; 0: there is no such folder. */
function changedAt(folder: string): number {
  return statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
