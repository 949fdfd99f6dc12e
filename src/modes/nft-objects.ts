import { NftBatch } from '../kernel/nftables/batch.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import type { IPFamily } from '../lib/address.ts';
import { writeElements } from '../nft/element-writer.ts';
import { printElements, printRule, tableTitle } from '../nft/print.ts';
import { type ElementGroup, type SetSpec, shapeOf } from '../nft/spec.ts';
import type { ObjectSection } from './rendering.ts';

/** Groups of elements of one table. */
export interface NftContents {
  readonly family: IPFamily;
  readonly table: string;
  /** The sets of the table that do not come with the groups. */
  readonly sets: readonly SetSpec[];
  /** The Service's own elements. */
  readonly groups: readonly ElementGroup[];
  /** Elements that other Services may use too. */
  readonly shared?: readonly ElementGroup[];
}

/** Lists elements by set, and the chains that come with them, as `nft list` prints them. */
export function nftSections(contents: NftContents): ObjectSection[] {
  const { family, table, groups, shared = [] } = contents;
  const title = tableTitle(family, table);
  const sets = setsOf(contents);
  const sections: ObjectSection[] = [];
  for (const [list, isShared] of [
    [groups, false],
    [shared, true],
  ] as const) {
    const bySet = new Map<string, string[]>();
    for (const one of list.flatMap(({ elements }) => elements)) {
      const set = sets.get(one.set);
      if (!set || one.count === 0) continue;
      bySet.set(one.set, [...(bySet.get(one.set) ?? []), ...printElements(set, shapeOf(set), one)]);
    }
    for (const [name, lines] of bySet) {
      const type = sets.get(name)?.data === undefined ? 'set' : 'map';
      sections.push({
        kind: `${type} elements`,
        command: `nft list ${type} ${title} ${name}`,
        lines,
        isShared,
      });
    }
  }
  const chains = new Map(
    groups.flatMap(({ needs }) =>
      needs.flatMap(({ chains }) => chains.map((one) => [one.name, one] as const)),
    ),
  );
  for (const { name, rules } of chains.values()) {
    const command = `nft list chain ${title} ${name}`;
    sections.push({ kind: 'rules', command, lines: rules.map(printRule), isShared: true });
  }
  return sections;
}

/** Returns the length of the netlink transaction that writes the Service's own elements. */
export function nftBytes(contents: NftContents): number {
  const { family, table, groups } = contents;
  const sets = setsOf(contents);
  const batch = new NftBatch(NFPROTO[family], () => 1);
  for (const one of groups.flatMap(({ elements }) => elements)) {
    const set = sets.get(one.set);
    if (set) writeElements(batch, table, shapeOf(set), one, 0, one.count);
  }
  return batch.finish().bytes.length;
}

function setsOf({ sets, groups, shared = [] }: NftContents): Map<string, SetSpec> {
  const needed = [...groups, ...shared].flatMap(({ needs }) => needs.flatMap((one) => one.sets));
  return new Map([...sets, ...needed].map((set) => [set.name, set]));
}
