import { readOptionalFile } from './optional-file.ts';

/** A range of ids of a user namespace (user_namespaces(7)): `first` is its first id inside. */
export interface IdRange {
  readonly first: number;
  readonly count: number;
}

const EVERY_ID = 0xffff_ffff;

/** Returns the ids that this process's user namespace has, from /proc/self/uid_map or gid_map: all on the machine itself. */
export function mappedIds(kind: 'uid' | 'gid'): readonly IdRange[] {
  const text = readOptionalFile(`/proc/self/${kind}_map`);
  // The kernel has no user namespaces.
  return text === null ? [{ first: 0, count: EVERY_ID }] : parseIdMap(text);
}

/** Parses a map: lines of the first id inside, the first id outside and the count. */
export function parseIdMap(text: string): readonly IdRange[] {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => {
      const [first = 0, , count = 0] = line.trim().split(/\s+/).map(Number);
      return { first, count };
    });
}

/** Reports whether an id is mapped: processes can have it, and files can belong to it. */
export const isMapped = (ranges: readonly IdRange[], id: number): boolean =>
  ranges.some(({ first, count }) => id >= first && id < first + count);

/** Reports whether this process is in a user namespace, which lacks ids of the machine: it is root of a part only. */
export function inUserNamespace(): boolean {
  return !mappedIds('uid').some(({ first, count }) => first === 0 && count === EVERY_ID);
}
