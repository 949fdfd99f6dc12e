import type { BpfMap } from '../../kernel/bpf/map.ts';
import type { Drift } from '../dataplane.ts';
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
  const drifts: Drift[] = [];
  const report = (what: string, kind: Drift['kind']) =>
    drifts.push({ object: `bpf: ${pins}, map-${what}`, kind });
  const found = maps.config.lookup(indexKey(0));
  if (!found || Buffer.compare(found, config) !== 0) report('config', 'different');
  const frontends = entriesOf(maps.frontends);
  for (const [key, value] of expected.frontends) {
    const shown = frontends.get(key);
    if (!shown) report(`frontends, ${keyText(key)}`, 'missing');
    else if (Buffer.compare(shown, value) !== 0) report(`frontends, ${keyText(key)}`, 'different');
  }
  for (const key of frontends.keys()) {
    if (!expected.frontends.has(key)) report(`frontends, ${keyText(key)}`, 'unexpected');
  }
  for (const [index, shown] of slotsOf(maps.endpoints, [...expected.slots.keys()])) {
    if (Buffer.compare(shown, expected.slots.get(index) ?? new Uint8Array()) !== 0)
      report(`endpoints, slot ${index}`, 'different');
  }
  const members = entriesOf(maps.members);
  for (const key of expected.members) if (!members.has(key)) report('members', 'missing');
  for (const key of members.keys()) if (!expected.members.has(key)) report('members', 'unexpected');
  return drifts;
}

function entriesOf(map: BpfMap): Map<string, Uint8Array> {
  return new Map(map.entries().map(([key, value]) => [Buffer.from(key).toString('latin1'), value]));
}

/** Returns the slots with these indexes, read run by run. */
function slotsOf(map: BpfMap, indexes: number[]): [number, Uint8Array][] {
  indexes.sort((a, b) => a - b);
  const out: [number, Uint8Array][] = [];
  for (let i = 0; i < indexes.length; ) {
    const first = indexes[i] ?? 0;
    let count = 1;
    while (indexes[i + count] === first + count) count++;
    for (const [at, value] of map.range(first, count).entries()) out.push([first + at, value]);
    i += count;
  }
  return out;
}
