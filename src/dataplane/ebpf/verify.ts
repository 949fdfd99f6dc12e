import type { BpfMap } from '../../kernel/bpf/map.ts';
import type { AttachPoint } from '../../kernel/bpf/program.ts';
import type { Drift } from '../dataplane.ts';
import type { ForwardingTable } from './forwarding-table.ts';
import { formatMapped } from './kernel-contents.ts';
import { pinDirectory } from './pins.ts';
import { brokenLinks, type Links, type Maps } from './socket-programs.ts';

interface Programmed {
  readonly maps: Maps;
  readonly table: ForwardingTable;
  readonly links: Links;
  /** Those that should be attached. */
  readonly hooks: ReadonlySet<AttachPoint>;
  /** Null where there is no rescue. */
  readonly attachments: { missing(): string[] } | null;
}

/** Differences between what the kernel holds and what was programmed. */
export function compareWithMaps(
  { maps, table, links, hooks, attachments }: Programmed,
  config: Uint8Array,
  cgroup: string,
  pinPath: string,
): Drift[] {
  const { frontends, slots, members } = table.expected();
  const object = (what: string) => `bpf: ${pinDirectory(pinPath)}, ${what}`;
  const broken = [...brokenLinks(links, cgroup, pinPath, hooks), ...(attachments?.missing() ?? [])];
  const drifts: Drift[] = broken.map((name) => ({ object: object(`link-${name}`), kind: 'missing' }));
  const settings = maps.config.lookup(new Uint8Array(4));
  if (!settings || Buffer.compare(settings, config) !== 0) {
    drifts.push({ object: object('map-config'), kind: 'different' });
  }
  const there = textEntries(maps.frontends);
  for (const [key, value] of frontends) {
    const shown = there.get(key);
    const what = object(`map-frontends, ${keyText(key)}`);
    if (!shown) drifts.push({ object: what, kind: 'missing' });
    else if (Buffer.compare(shown, value) !== 0) drifts.push({ object: what, kind: 'different' });
  }
  for (const key of there.keys()) {
    if (!frontends.has(key))
      drifts.push({ object: object(`map-frontends, ${keyText(key)}`), kind: 'unexpected' });
  }
  for (const [index, shown] of slotsOf(maps.endpoints, [...slots.keys()])) {
    if (Buffer.compare(shown, slots.get(index) ?? new Uint8Array()) !== 0) {
      drifts.push({ object: object(`map-endpoints, slot ${index}`), kind: 'different' });
    }
  }
  const shownMembers = textEntries(maps.members);
  for (const key of members) {
    if (!shownMembers.has(key)) drifts.push({ object: object('map-members'), kind: 'missing' });
  }
  for (const key of shownMembers.keys()) {
    if (!members.has(key)) drifts.push({ object: object('map-members'), kind: 'unexpected' });
  }
  return drifts;
}

/** "10.96.0.1 port 443 protocol 6" of a frontend's key. */
export function keyText(key: string): string {
  const bytes = new Uint8Array(Buffer.from(key, 'latin1'));
  const port = ((bytes[16] ?? 0) << 8) | (bytes[17] ?? 0);
  return `${formatMapped(bytes.subarray(0, 16))} port ${port} protocol ${bytes[18]}`;
}

function textEntries(map: BpfMap): Map<string, Uint8Array> {
  return new Map(map.entries().map(([key, value]) => [Buffer.from(key).toString('latin1'), value]));
}

/** The slots of these indexes, read run by run. */
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
