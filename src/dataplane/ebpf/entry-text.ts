import type { BpfMap } from '../../kernel/bpf/map.ts';
import { familyOf, hostPort } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import {
  FRONTEND_KEY_WORDS,
  type FrontendEntry,
  formatMapped,
  readAffinity,
  readFrontend,
  readSlotEntry,
  writeKey,
} from './entries.ts';
import { ACTION, BALANCE, MAPS } from './generated/layout.ts';
import { closeMaps, indexKey, type Maps, openMaps } from './maps.ts';
import { mapPin } from './pins.ts';

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
    ...(value
      ? [`key: address ${ip}, port ${port}, protocol ${protocol}`, ...frontendText(readFrontend(value))]
      : [MISSING]),
  ];
}

function frontendText({ id, affinitySeconds, balance, pod, node }: FrontendEntry): string[] {
  const routeText = ({ action, first, count }: FrontendEntry['pod']) =>
    `action ${nameOf(ACTION, action)}, first ${first}, count ${count}`;
  const failover = balance & BALANCE.NO_FAILOVER ? ' | NO_FAILOVER' : '';
  return [
    `value: id ${id}, affinity_seconds ${affinitySeconds}, balance ${nameOf(BALANCE, balance & BALANCE.BALANCE_MASK)}${failover}`,
    `  routes[POD]: ${routeText(pod)}`,
    `  routes[NODE]: ${routeText(node)}`,
  ];
}

function slotLines(
  map: BpfMap,
  pin: string,
  { first, last }: Extract<EntryQuestion, { map: 'endpoints' }>,
): string[] {
  const end = Math.min(last, map.maxEntries - 1, first + MAX_ENTRIES - 1);
  const values = end < first ? [] : map.range(first, end - first + 1);
  const lines = values.map((value, i) => {
    const { address, port, owner, backend } = readSlotEntry(value);
    return `key ${first + i}: address ${formatMapped(address)}, port ${port}, owner ${owner}, backend ${backend}`;
  });
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
  const found = map
    .entries()
    .map(([key, value]) => readAffinity(key, value))
    .filter((one) => one.frontend === frontend);
  const lines = found
    .slice(0, MAX_ENTRIES)
    .map(
      ({ client, at, address, port }) =>
        `key: client ${client} (network namespace), frontend ${frontend}; value: endpoint ${hostPort({ ip: formatMapped(address), port })}, at ${at} ns`,
    );
  const none = 'no client of this frontend is remembered now';
  return listing(`bpftool map dump pinned ${pin}`, lines, found.length, none);
}

const hexText = (bytes: Uint8Array): string =>
  [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');

/** Returns the name of an enum's value. */
const nameOf = (values: Readonly<Record<string, number>>, value: number): string =>
  Object.entries(values).find(([, one]) => one === value)?.[0] ?? String(value);
