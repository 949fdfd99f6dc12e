import { CHAIN, TREE } from './chain-names.ts';
import type { TableInput } from './restore.ts';
import type { Rule } from './rule.ts';

/**
 * The nft variant of iptables-restore takes time with the square of the chains that one COMMIT names (it keeps them
 * in a sorted list): 22,000 chains take 26 s at once, and 3 s in pieces of this many.
 */
const CHAINS_PER_COMMIT = 200;

/** From what leads nowhere to what leads to everything else. */
const RANKS: readonly (readonly string[])[] = [
  [CHAIN.markMasquerade],
  ['KUBE-SEP-'],
  ['KUBE-SVC-', 'KUBE-SVL-'],
  ['KUBE-EXT-'],
  ['KUBE-FW-'],
  Object.values(TREE),
];

/**
 * Divides a large change of one table into several commits, so that traffic never meets half of it: first chains that
 * nothing leads to yet, each after those that it leads to; then, as one, everything that changes where packets go;
 * then the removal of chains that nothing leads to any more. `isLive` tells the chains that exist already.
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
    // Emptied before any is removed: some lead to others.
    ...chunks(gone).map(
      (chains): TableInput => ({ ...NOTHING, written: new Map(chains.map((c) => [c, []])) }),
    ),
    ...chunks(gone).map((deleted): TableInput => ({ ...NOTHING, deleted })),
  ];
}

const NOTHING: TableInput = { written: new Map(), deleted: [], hooks: [], unhooked: [] };

function rankOf(chain: string): number {
  const rank = RANKS.findIndex((prefixes) => prefixes.some((prefix) => chain.startsWith(prefix)));
  return rank < 0 ? RANKS.length : rank;
}

function chunks<T>(list: readonly T[]): T[][] {
  const out: T[][] = [];
  for (let i = 0; i < list.length; i += CHAINS_PER_COMMIT) out.push(list.slice(i, i + CHAINS_PER_COMMIT));
  return out;
}
