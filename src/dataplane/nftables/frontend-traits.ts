import type { NftBatch } from '../../kernel/nftables/batch.ts';
import { bytesOf, hexOf, wordsOf } from '../../nft/encoding.ts';
import { outermost } from '../../nft/ranges.ts';
import { type FrontendState, keyingOf } from './entries.ts';
import { stickySet } from './layout.ts';
import type { RegisterKeys } from './register-keys.ts';
import type { SizedSets } from './sized-sets.ts';

export interface TraitsTarget {
  readonly batch: NftBatch;
  readonly table: string;
  readonly keys: RegisterKeys;
  readonly sets: SizedSets;
  /** Adds what an affinity timeout needs where it is not there yet. */
  readonly ensureTimeout: (seconds: number) => void;
}

/** Affinity and source ranges: what a frontend may have besides its routes. */
export function hasTraits(state: FrontendState | null): boolean {
  return affinityOf(state) !== null || rangesOf(state) !== null;
}

/** Writes what is to be of a frontend's traits. Null: gone, or not there before. */
export function writeTraits(
  target: TraitsTarget,
  state: FrontendState | null,
  before: FrontendState | null,
): void {
  const one = state ?? before;
  if (!one) return;
  writeAffinity(target, one, affinityOf(state), affinityOf(before));
  writeRanges(target, one, rangesOf(state), rangesOf(before));
}

/** All elements of a frontend's traits, for `put`. */
export function expectedTraits(
  { frontend, head }: FrontendState,
  { family }: RegisterKeys,
  put: (set: string, key: ArrayLike<number>, value: string) => void,
): void {
  const { affinitySeconds, allowedSources } = frontend;
  if (affinitySeconds !== null) put(stickySet(keyingOf(frontend), affinitySeconds), head, '');
  if (!allowedSources) return;
  put('restricted', head, '');
  for (const { first, last } of outermost(allowedSources, family)) {
    put('allowed-sources', [...head, ...wordsOf(first)], hexOf(bytesOf([...head, ...wordsOf(last)])));
  }
}

const affinityOf = (state: FrontendState | null) => state?.frontend.affinitySeconds ?? null;
const rangesOf = (state: FrontendState | null) => state?.frontend.allowedSources ?? null;

function writeAffinity(
  { batch, table, sets, ensureTimeout }: TraitsTarget,
  { frontend, head }: FrontendState,
  seconds: number | null,
  before: number | null,
): void {
  if (before === seconds) return;
  if (before !== null) {
    const set = stickySet(keyingOf(frontend), before);
    batch.deleteElement(table, set, { key: head });
    sets.count(set, -1);
  }
  if (seconds !== null) {
    const set = stickySet(keyingOf(frontend), seconds);
    ensureTimeout(seconds);
    batch.addElement(table, set, { key: head });
    sets.count(set, 1);
  }
}

type Ranges = FrontendState['frontend']['allowedSources'];

function writeRanges(
  { batch, table, keys, sets }: TraitsTarget,
  { head }: FrontendState,
  sources: Ranges,
  before: Ranges,
): void {
  const byText = (ranges: Ranges) =>
    new Map(
      outermost(ranges ?? [], keys.family).map((one) => [`${hexOf(one.first)}-${hexOf(one.last)}`, one]),
    );
  const element = ({ first, last }: { first: Uint8Array; last: Uint8Array }) => ({
    key: [...head, ...wordsOf(first)],
    keyEnd: [...head, ...wordsOf(last)],
  });
  const [old, next] = [byText(before), byText(sources)];
  for (const [text, range] of old)
    if (!next.has(text)) batch.deleteElement(table, 'allowed-sources', element(range));
  for (const [text, range] of next)
    if (!old.has(text)) batch.addElement(table, 'allowed-sources', element(range));
  if ((before === null) === (sources === null)) return;
  sets.count('restricted', sources ? 1 : -1);
  if (sources) batch.addElement(table, 'restricted', { key: head });
  else batch.deleteElement(table, 'restricted', { key: head });
}
