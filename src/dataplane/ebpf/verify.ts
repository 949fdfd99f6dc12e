import type { BpfMap } from '../../kernel/bpf/map.ts';
import { type Drift, driftsBetween } from '../dataplane.ts';
import { keyText } from './entries.ts';
import type { ForwardingTable } from './forwarding-table.ts';
import { indexKey, type Maps } from './maps.ts';

/** Returns the differences between the maps and the table's writes; `pins`: the folder that names them. */
export function compareWithMaps(
  maps: Maps,
  table: ForwardingTable,
  config: Uint8Array,
  pins: string,
): Drift[] {
  const expected = table.expected();
  const at = (what: string) => `bpf: ${pins}, map-${what}`;
  const slots = slotsOf(maps.endpoints, [...expected.slots.keys()]);
  const nameOf = (key: string) => at(`frontends, ${keyText(key)}`);
  const settings = maps.config.lookup(indexKey(0));
  const isConfigured = settings !== null && isSame(config, settings);
  return [
    ...(isConfigured ? [] : [{ object: at('config'), kind: 'different' as const }]),
    ...driftsBetween(expected.frontends, entriesOf(maps.frontends), nameOf, isSame),
    ...driftsBetween(expected.slots, slots, (index) => at(`endpoints, slot ${index}`), isSame),
    ...driftsBetween(new Map(expected.members.entries()), entriesOf(maps.members), () => at('members')),
  ];
}

const isSame = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

function entriesOf(map: BpfMap): Map<string, Uint8Array> {
  return new Map(map.entries().map(([key, value]) => [Buffer.from(key).toString('latin1'), value]));
}

/** Returns the slots with these indexes, read run by run. */
function slotsOf(map: BpfMap, indexes: number[]): Map<number, Uint8Array> {
  indexes.sort((a, b) => a - b);
  const out = new Map<number, Uint8Array>();
  for (let i = 0; i < indexes.length; ) {
    const first = indexes[i] ?? 0;
    let count = 1;
    while (indexes[i + count] === first + count) count++;
    for (const [at, value] of map.range(first, count).entries()) out.set(first + at, value);
    i += count;
  }
  return out;
}
