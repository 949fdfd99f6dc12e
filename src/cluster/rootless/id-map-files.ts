import { readOptionalFile } from '../../kernel/optional-file.ts';

/** A range of the machine's ids that a user may use in own user namespaces (subuid(5)). */
export interface SubordinateRange {
  readonly start: number;
  readonly count: number;
}

/** Fewer ids do not suffice: images and pods use ids up to 65535. */
const MIN_COUNT = 65_536;

/** Finds the user's range in the text of /etc/subuid or /etc/subgid, by name or number; null: none of a useful size. */
export function subordinateRange(text: string, user: string | null, uid: number): SubordinateRange | null {
  for (const line of text.split('\n')) {
    const [owner = '', start = '', count = ''] = line.trim().split(':');
    if ((owner !== user && owner !== String(uid)) || !/^\d+$/.test(start) || !/^\d+$/.test(count)) continue;
    if (Number(count) >= MIN_COUNT) return { start: Number(start), count: Number(count) };
  }
  return null;
}

/** Reads the user's ranges; null: the machine has none for the user in one of the files. */
export function readSubordinateRanges(
  user: string | null,
  uid: number,
): { readonly uids: SubordinateRange; readonly gids: SubordinateRange } | null {
  const uids = subordinateRange(readOptionalFile('/etc/subuid') ?? '', user, uid);
  const gids = subordinateRange(readOptionalFile('/etc/subgid') ?? '', user, uid);
  return uids && gids ? { uids, gids } : null;
}
