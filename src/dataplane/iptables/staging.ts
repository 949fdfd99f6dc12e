import { CHAIN, TREE_PREFIXES } from './chain-names.ts';
import { NOTHING, type TableInput } from './restore.ts';
import type { Rule } from './rule.ts';

/**
 * The nft variant of iptables-restore takes quadratic time in the number of chains of a COMMIT, which it keeps in a sorted
 * list: 22,000 chains take 26 s at once, and 3 s in commits of this size.
 */
const CHAINS_PER_COMMIT = 200;

/** Chains only jump to chains of a lower rank. */
const RANKS: readonly (readonly string[])[] = [
  [CHAIN.markMasquerade],
  ['KUBE-SEP-'],
  ['KUBE-SVC-', 'KUBE-SVL-'],
  ['KUBE-EXT-'],
  ['KUBE-FW-'],
  TREE_PREFIXES,
];

/**
 * Splits a large change of one table into several commits without exposing traffic to a partial change:
 * first new chains, each after those that it jumps to; then, in one commit, everything that changes the
 * path of packets; then the deletion of chains that are no longer used. `isLive`: the chain exists already.
 */
export function stages(input: TableInput, isLive: (chain: string) => boolean): TableInput[] {
  if (input.written.size + input.deleted.length <= CHAINS_PER_COMMIT) return [input];
  const early: [string, readonly Rule[]][] = [];
  const late = new Map<string, readonly Rule[]>();
  // Trees are rendered from the root: reversed, each chain comes after those below it.
  for (const [chain, rules] of [...input.written].reverse()) {
    if (rankOf(chain) < RANKS.length && !isLive(chain)) early.push([chain, rules]);
    else late.set(chain, rules);
  }
  early.sort(([a], [b]) => rankOf(a) - rankOf(b));
  const gone = input.deleted.toSorted((a, b) => rankOf(b) - rankOf(a));
  return [
    ...chunks(early).map((written): TableInput => ({ ...NOTHING, written: new Map(written) })),
    { ...input, written: late, deleted: [] },
    // All chains are emptied before any is deleted: they may jump to each other.
    ...chunks(gone).map(
      (chains): TableInput => ({ ...NOTHING, written: new Map(chains.map((c) => [c, []])) }),
    ),
    ...chunks(gone).map((deleted): TableInput => ({ ...NOTHING, deleted })),
  ];
}

function rankOf(chain: string): number {
  const rank = RANKS.findIndex((prefixes) => prefixes.some((prefix) => chain.startsWith(prefix)));
  return rank < 0 ? RANKS.length : rank;
}

function chunks<T>(list: readonly T[]): T[][] {
  const out: T[][] = [];
  for (let i = 0; i < list.length; i += CHAINS_PER_COMMIT) out.push(list.slice(i, i + CHAINS_PER_COMMIT));
  return out;
}
