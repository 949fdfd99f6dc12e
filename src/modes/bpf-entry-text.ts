import { FRONTEND_KEY_WORDS, formatMapped, writeKey } from '../dataplane/ebpf/entries.ts';
import {
  ACTION,
  AFFINITY,
  AFFINITY_KEY,
  BALANCE,
  ENDPOINT,
  FRONTEND,
  FRONTEND_KEY,
  MAPS,
  ROUTE,
} from '../dataplane/ebpf/generated/layout.ts';
import { closeMaps, indexKey, type Maps, openMaps } from '../dataplane/ebpf/maps.ts';
import { mapPin } from '../dataplane/ebpf/pins.ts';
import type { BpfMap } from '../kernel/bpf/map.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { familyOf } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

/** Entries of a map, as `locateSteps` names them. */
export type EntryQuestion =
  | {
      readonly map: 'frontends';
      readonly ip: string;
      readonly port: number;
      readonly protocol: 'TCP' | 'UDP';
    }
  | { readonly map: 'endpoints'; readonly first: number; readonly last: number }
  | { readonly map: 'affinities'; readonly frontend: number };

/** How many slots or clients are printed. */
const MAX_ENTRIES = 64;

/** Reads which entries an object means ("bpf: map fl_endpoints, slots 8 to 10"); null: none. */
export function readEntryQuestion(object: string): EntryQuestion | null {
  const [, map, entries = ''] = /^bpf: (?:program [\w/]+, )?map (fl_\w+), (.*)$/.exec(object) ?? [];
  if (map === MAPS.frontends.name) {
    const [, ip, port, protocol] = /^key ([\da-f.:]+) port (\d{1,5}) protocol (TCP|UDP)$/.exec(entries) ?? [];
    if (!ip || !port || familyOf(ip) === null) return null;
    return { map: 'frontends', ip, port: Number(port), protocol: protocol === 'UDP' ? 'UDP' : 'TCP' };
  }
  if (map === MAPS.endpoints.name) {
    const [, first, last] = /^slots (\d{1,9}) to (\d{1,9})$/.exec(entries) ?? [];
    return first && last ? { map: 'endpoints', first: Number(first), last: Number(last) } : null;
  }
  if (map !== MAPS.affinities.name) return null;
  const [, frontend] = /^frontend (\d{1,10})$/.exec(entries) ?? [];
  return frontend ? { map: 'affinities', frontend: Number(frontend) } : null;
}

/**
 * Returns the entries as the kernel's map has them now, decoded, below the command that prints the same bytes. Throws FairleadError
 * if the node has no maps of this release.
 */
export function readEntryText(pinPath: string, question: EntryQuestion): string {
  const opened = openMaps(pinPath);
  if (!opened)
    throw new FairleadError(`no BPF maps of this release at ${pinPath}`, {
      op: 'read BPF map entries',
      code: 'ENOENT',
      hint: 'the node is not in eBPF mode',
    });
  try {
    return linesOf(opened.maps, mapPin(pinPath, question.map), question).join('\n');
  } finally {
    closeMaps(opened.maps);
  }
}

function linesOf(maps: Maps, pin: string, question: EntryQuestion): string[] {
  switch (question.map) {
    case 'frontends':
      return frontendLines(maps.frontends, pin, question);
    case 'endpoints':
      return slotLines(maps.endpoints, pin, question);
    case 'affinities':
      return affinityLines(maps.affinities, pin, question.frontend);
  }
}

const MISSING = 'the map has no such entry now';

function frontendLines(
  map: BpfMap,
  pin: string,
  { ip, port, protocol }: Extract<EntryQuestion, { map: 'frontends' }>,
): string[] {
  const words = new Uint32Array(FRONTEND_KEY_WORDS);
  writeKey(words, 0, familyOf(ip) ?? 'ipv4', { ip, port }, protocol);
  const key = new Uint8Array(words.buffer);
  const value = map.lookup(key);
  return [
    `# bpftool map lookup pinned ${pin} key hex ${hexText(key)}`,
    ...(value ? [`key: ${fieldsText(FRONTEND_KEY, key)}`, ...frontendText(value)] : [MISSING]),
  ];
}

function frontendText(value: Uint8Array): string[] {
  const route = (name: string, from: number) =>
    `  routes[${name}]: ${fieldsText(ROUTE, value.subarray(from, from + ROUTE.size))}`;
  return [
    `value: ${fieldsText(FRONTEND, value)}`,
    route('POD', FRONTEND.routes),
    route('NODE', FRONTEND.routes + ROUTE.size),
  ];
}

function slotLines(
  map: BpfMap,
  pin: string,
  { first, last }: Extract<EntryQuestion, { map: 'endpoints' }>,
): string[] {
  const end = Math.min(last, map.maxEntries - 1, first + MAX_ENTRIES - 1);
  const values = end < first ? [] : map.range(first, end - first + 1);
  const lines = values.map((value, i) => `key ${first + i}: ${fieldsText(ENDPOINT, value)}`);
  const command =
    first === last
      ? `bpftool map lookup pinned ${pin} key hex ${hexText(indexKey(first))}`
      : `bpftool map dump pinned ${pin}`;
  return listing(command, lines, last - first + 1, MISSING);
}

/** Returns the first lines of `count` below their command. */
const listing = (command: string, lines: readonly string[], count: number, none: string): string[] => [
  `# ${command}`,
  ...(lines.length > 0 ? lines : [none]),
  ...(lines.length > 0 && lines.length < count ? [`… ${count - lines.length} more`] : []),
];

function affinityLines(map: BpfMap, pin: string, frontend: number): string[] {
  const found = [...map.entries()].filter(([key]) => numberAt(key, AFFINITY_KEY.frontend) === frontend);
  const lines = found
    .slice(0, MAX_ENTRIES)
    .map(([key, value]) => `key: ${fieldsText(AFFINITY_KEY, key)}; value: ${fieldsText(AFFINITY, value)}`);
  const none = 'no client of this frontend is remembered now';
  return listing(`bpftool map dump pinned ${pin}`, lines, found.length, none);
}

const hexText = (bytes: Uint8Array): string =>
  [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');

const numberAt = (bytes: Uint8Array, at: number): number =>
  new DataView(bytes.buffer, bytes.byteOffset).getUint32(at, true);

/**
 * Returns the fields of a structure ("address 10.96.0.1, port 80, protocol 6"), but no padding and no nested structures. They are
 * read by their width: an address has 16 bytes, a time 8, a number 4, a port 2, a protocol 1.
 */
function fieldsText(layout: Readonly<Record<string, number>>, bytes: Uint8Array): string {
  const { size = 0, ...offsets } = layout;
  const fields = Object.entries(offsets);
  const texts = fields.flatMap(([name, at], i) => {
    if (/zero$/.test(name)) return [];
    const text = valueText(name, bytes.subarray(at, fields[i + 1]?.[1] ?? size));
    return text === null ? [] : [`${name} ${text}`];
  });
  return texts.join(', ');
}

function valueText(name: string, bytes: Uint8Array): string | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  switch (bytes.length) {
    case 1:
      return nameOf(PROTOCOL_NUMBER, view.getUint8(0));
    case 2:
      return String(view.getUint16(0));
    case 4:
      return numberText(name, view.getUint32(0, true));
    case 8:
      return String(view.getBigUint64(0, true));
    case 16:
      return formatMapped(bytes);
    default:
      return null;
  }
}

function numberText(name: string, value: number): string {
  if (name === 'action') return nameOf(ACTION, value);
  if (name !== 'balance') return String(value);
  const failover = value & BALANCE.NO_FAILOVER ? ' | NO_FAILOVER' : '';
  return `${nameOf(BALANCE, value & BALANCE.BALANCE_MASK)}${failover}`;
}

/** Returns the name of an enum's value. */
const nameOf = (values: Readonly<Record<string, number>>, value: number): string =>
  Object.entries(values).find(([, one]) => one === value)?.[0] ?? String(value);
