import type { BpfMap } from '../../kernel/bpf/map.ts';
import { type Drift, driftsBetween } from '../dataplane.ts';
import { ENDPOINT_WORDS, FRONTEND_KEY_WORDS, keyText, textOf } from './entries.ts';
import type { ForwardingTable } from './forwarding-table.ts';
import { indexKey, type Maps } from './maps.ts';
import { render } from './render.ts';

/** Returns the differences between the maps and the table's writes; `pins`: the folder that names them. */
export function compareWithMaps(
  maps: Maps,
  table: ForwardingTable,
  config: Uint8Array,
  pins: string,
): Drift[] {
  const expected = contentsOf(table);
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

/** Renders all frontends: slots by index, frontends and members by key. */
function contentsOf(table: ForwardingTable) {
  const frontends = new Map<string, Uint8Array>();
  const slots = new Map<number, Uint8Array>();
  const members = new Set<string>();
  for (const placed of table.frontends()) {
    const entries = render(placed);
    const { buffer } = entries.frontend;
    frontends.set(
      textOf(new Uint8Array(buffer, 0, FRONTEND_KEY_WORDS * 4)),
      new Uint8Array(buffer, FRONTEND_KEY_WORDS * 4),
    );
    for (const run of entries.runs) {
      const size = ENDPOINT_WORDS * 4;
      for (let at = 0; at < run.slots.byteLength; at += size) {
        slots.set(run.first + at / size, new Uint8Array(run.slots.buffer, at, size));
      }
      for (const [key] of run.members) members.add(textOf(key));
    }
  }
  return { frontends, slots, members };
}

const isSame = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

function entriesOf(map: BpfMap): Map<string, Uint8Array> {
  return new Map(map.entries().map(([key, value]) => [textOf(key), value]));
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
