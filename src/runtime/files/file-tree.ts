import { lstat, opendir, rm } from 'node:fs/promises';
import { hasCode } from '../../lib/errors.ts';
import { inFileThread } from './file-thread.ts';

/** Larger trees are left to a thread, which takes 50 ms to start. */
const MAX_ENTRIES = 400;
const MAX_DEPTH = 16;
const REMOVAL_SECONDS = 600;
const MEASUREMENT_SECONDS = 60;

/**
 * Removes a folder or file with everything below it: a pod may have written any number of files, at any depth. Succeeds if
 * it does not exist. Throws FairleadError, "ETIMEDOUT" after 10 minutes.
 */
export async function removeTree(path: string): Promise<void> {
  if ((await measureSmall(path)) === null) await inFileThread({ kind: 'remove', path }, REMOVAL_SECONDS);
  else await rm(path, { recursive: true, force: true });
}

/**
 * Returns the bytes on disk of everything below a folder; see measureTree. Throws FairleadError, "ETIMEDOUT" after a
 * minute.
 */
export async function treeUsage(path: string): Promise<number> {
  return (await measureSmall(path)) ?? (await inFileThread({ kind: 'measure', path }, MEASUREMENT_SECONDS));
}

/** Returns the bytes on disk of a small tree; null for a large one. Names are bytes, kept as Latin-1 text (whole-tree.ts). */
async function measureSmall(path: string): Promise<number | null> {
  let left = MAX_ENTRIES;
  const measure = async (at: string, depth: number): Promise<number | null> => {
    if (left-- === 0 || depth > MAX_DEPTH) return null;
    const name = Buffer.from(at, 'latin1');
    try {
      const stat = await lstat(name);
      let sum = stat.blocks * 512;
      if (!stat.isDirectory()) return sum;
      for await (const entry of await opendir(name as unknown as string, { encoding: 'latin1' })) {
        const below = await measure(`${at}/${entry.name}`, depth + 1);
        if (below === null) return null;
        sum += below;
      }
      return sum;
    } catch (error) {
      if (hasCode(error, 'ENOENT', 'ENOTDIR')) return 0;
      if (hasCode(error, 'ENAMETOOLONG')) return null;
      throw error;
    }
  };
  return await measure(Buffer.from(path).toString('latin1'), 0);
}
