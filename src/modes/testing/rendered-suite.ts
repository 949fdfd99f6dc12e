import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import type { Dataplane, Mode } from '../../dataplane/dataplane.ts';
import { formatMapped, readFrontend } from '../../dataplane/ebpf/entries.ts';
import { ENDPOINT, FRONTEND_KEY, MEMBER } from '../../dataplane/ebpf/generated/layout.ts';
import { closeMaps, openMaps } from '../../dataplane/ebpf/maps.ts';
import { removePins } from '../../dataplane/ebpf/pins.ts';
import { makeTestGroup, removeTestGroup } from '../../dataplane/ebpf/testing/client.ts';
import { goldenServices } from '../../dataplane/testing/golden-services.ts';
import { NODE } from '../../dataplane/testing/service-map.ts';
import { openIpsets } from '../../kernel/ipset.ts';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import type { Protocol } from '../../service/model.ts';
import { compareModes, type ModeSection } from '../comparison.ts';
import { actionWords, frontendWords, slotWords } from '../ebpf.ts';

const id = randomBytes(3).toString('hex');
const netns = `flt-${id}-modes`;
const pinPath = `/run/flt-${id}-bpf`;
const map = goldenServices();
const SERVICES = new Set([...map.frontends.values()].map(({ owner }) => owner.name));

function run(...words: readonly string[]): string {
  return execFileSync('ip', ['netns', 'exec', netns, ...words], { encoding: 'utf8' });
}

/** Returns the address of a pool's listener. */
type Listening = (pool: string) => SocketAddress | null;

/** A mode to open in the namespace of the test. */
export interface OpenedMode {
  readonly mode: Mode;
  readonly open: (place: {
    readonly netns: string;
    readonly cgroup: string;
    readonly pinPath: string;
  }) => Dataplane;
  readonly listenerOf?: (dataplane: Dataplane) => Listening;
}

/** Tests that the objects that a mode is said to write are listed by its own tools after it has written them. */
export function testRendered({ mode, open, listenerOf }: OpenedMode): void {
  let group = '';
  before(() => {
    createNetns(netns);
    run('ip', 'link', 'set', 'lo', 'up');
    run('ip', 'address', 'add', `${NODE.ipv4}/32`, 'dev', 'lo');
    if (mode === 'ebpf') group = makeTestGroup();
  });
  after(async () => {
    if (group) await removeTestGroup(group);
    removeNetns(netns);
  });

  test(`${mode}: the objects, as rendered without it, are those that its tools list`, async () => {
    const dataplane = open({ netns, cgroup: group, pinPath });
    try {
      await dataplane.sync(map);
      const rendered = new Map<string, Set<string>>();
      for (const { command, lines } of sectionsOf(mode, listenerOf?.(dataplane) ?? (() => null))) {
        const known = rendered.get(command) ?? new Set();
        rendered.set(command, known);
        for (const line of lines) known.add(comparable(command, line));
      }
      assert.ok(rendered.size >= 3, `${rendered.size} kinds of objects`);
      for (const [command, lines] of rendered)
        assert.deepEqual([...lines].sort(), [...new Set(listed(command))].sort(), command);
      const tables = [...rendered.keys()].flatMap(
        (command) => /^nft list map ip (\S+)/.exec(command)?.[1] ?? [],
      );
      for (const table of new Set(tables)) {
        const missing = filledSets(table).filter((name) => !OF_NODE.has(name) && !isRendered(rendered, name));
        assert.deepEqual(missing, [], `sets of table ${table} that are not rendered`);
      }
    } finally {
      await dataplane.remove();
      await dataplane.close();
      if (mode === 'ebpf') removePins(pinPath);
    }
  });
}

/** Sets whose elements depend on the node only. */
const OF_NODE = new Set(['own-addresses', 'service-networks', 'nodeport-networks']);

const isRendered = (rendered: ReadonlyMap<string, unknown>, set: string): boolean =>
  [...rendered.keys()].some((command) => command.endsWith(` ${set}`));

/** Returns the sets and maps of a table that have elements. */
const filledSets = (table: string): string[] =>
  run('nft', 'list', 'table', 'ip', table)
    .split(/^\t(?=set|map|chain)/m)
    .flatMap((text) => (text.includes('elements = {') ? (/^(?:set|map) (\S+)/.exec(text)?.[1] ?? []) : []));

/** Returns the sections of all Services in one mode. */
function sectionsOf(mode: Mode, listenerOf: Listening): readonly ModeSection[] {
  return [...SERVICES].flatMap((name) => {
    const comparison = compareModes({
      map,
      namespace: 'shop',
      name,
      inUse: mode,
      nodeIn: () => map.node,
      listenerOf,
      unavailable: new Map(),
      drifts: [],
    });
    return comparison?.modes.find((one) => one.mode === mode)?.sections ?? [];
  });
}

/** Versions of iptables differ in when they quote a comment. */
const plain = (line: string): string => line.replaceAll('"', '');

/** Returns the part of a rendered line that its command prints too. */
function comparable(command: string, line: string): string {
  // "tcp 192.0.2.10:40001": the tool does not know what a listener is for.
  if (command.startsWith('ss ')) return line.split(' ').slice(0, 2).join(' ');
  // The program ipset is rarely installed: names are compared.
  if (command.startsWith('ipset ')) return line.split(' ')[1] ?? '';
  return command.startsWith('nft list chain ') ? ruleObjects(line) : plain(line);
}

/** Versions of nft write the same rule in other words: returns the maps and chains that it names. */
const ruleObjects = (rule: string): string =>
  (rule.match(/@\S+|goto \S+|mod \d+|drop|mark set|saddr != \S+/g) ?? [`unknown rule: ${rule}`]).join(' ');

/** Lists the kernel's objects with the command of a section, in the form of its lines. */
function listed(command: string): string[] {
  const words = command.split(' ');
  const [program = ''] = words;
  switch (program) {
    case 'nft':
      return listedByNft(words);
    case 'iptables-save':
      return run(...words)
        .split('\n')
        .filter((line) => /^-A KUBE-(SVC|SVL|SEP|EXT|FW|IP|NP|XIP|FWIP|CIP|SELF)-/.test(line))
        .filter((line) => !/ -g KUBE-/.test(line))
        .map(plain);
    case 'ipset': {
      const sets = openIpsets(netns);
      try {
        return sets.list();
      } finally {
        sets.close();
      }
    }
    case 'ss':
      return run('ss', '-Hlntu')
        .split('\n')
        .filter(Boolean)
        .map((line) => line.trim().split(/ +/))
        .map(([protocol, , , , at]) => `${protocol} ${at}`);
    case 'ipvsadm-save':
      // ipvsadm-save prints marks as signed numbers.
      return run('ipvsadm-save', '-n')
        .split('\n')
        .filter(Boolean)
        .map((line) => line.trim().replace(/(?<=-f )-\d+/, (mark) => String(Number(mark) >>> 0)));
    case 'ip':
      return [...run(...words).matchAll(/inet (\S+)/g)].map(([, address]) => `inet ${address}`);
    case 'bpftool':
      return listedMap(words.at(-1) ?? '');
    default:
      throw new Error(`no reader for ${command}`);
  }
}

function listedByNft(words: readonly string[]): string[] {
  const text = run(...words);
  if (words[2] === 'chain') {
    const lines = text.split('\n').map((line) => line.trim());
    return lines.filter((line) => line !== '' && !/^(table|chain|\})/.test(line)).map(ruleObjects);
  }
  const elements = /elements = \{([^}]*)\}/.exec(text)?.[1] ?? '';
  return elements.split(',').flatMap((one) => (one.trim() === '' ? [] : [inHostOrder(plain(one.trim()))]));
}

/** nft prints a mark that is the value of a map in network order. */
const inHostOrder = (line: string): string =>
  line.replace(/(?<= : 0x)[0-9a-f]{8}$/, (digits) => Buffer.from(digits, 'hex').reverse().toString('hex'));

/** Reads a pinned map, and describes its entries in the words of the comparison. */
function listedMap(name: string): string[] {
  const opened = openMaps(pinPath);
  assert.ok(opened, 'the maps are pinned');
  const { maps } = opened;
  try {
    const entries = maps.frontends.entries().map(([key, value]) => ({
      at: placeOf(key, FRONTEND_KEY.address, FRONTEND_KEY.port),
      protocol: (key[FRONTEND_KEY.protocol] === 17 ? 'UDP' : 'TCP') as Protocol,
      value: readFrontend(value),
    }));
    const runs = entries.flatMap(({ at, protocol, value: { pod, node } }) =>
      (pod.first === node.first ? [pod] : [pod, node]).map((run) => ({ at, protocol, ...run })),
    );
    switch (name) {
      case 'fl_frontends':
        return entries.map(({ at, protocol, value: { pod, node } }) =>
          frontendWords(
            at,
            protocol,
            actionWords(pod.action, pod.count),
            actionWords(node.action, node.count),
          ),
        );
      case 'fl_endpoints':
        return runs.flatMap(({ at, protocol, first, count }) =>
          maps.endpoints
            .range(first, count)
            .map((slot, i) => slotWords(at, protocol, i, placeOf(slot, ENDPOINT.address, ENDPOINT.port))),
        );
      case 'fl_members':
        return maps.members
          .entries()
          .map(([key]) => `member ${hostPort(placeOf(key, MEMBER.address, MEMBER.port))}`);
      case 'fl_backends': {
        // The map has counters only: slots name their endpoint and its number.
        const numbers = new Map(
          entries.flatMap(({ protocol, value: { pod, node } }) =>
            [pod, node].flatMap(({ first, count }) =>
              maps.endpoints.range(first, count).map((slot) => {
                const number = new DataView(slot.buffer, slot.byteOffset).getUint32(ENDPOINT.backend, true);
                return [number, `${hostPort(placeOf(slot, ENDPOINT.address, ENDPOINT.port))}/${protocol}`];
              }),
            ),
          ) as [number, string][],
        );
        return [...numbers.values()];
      }
      default:
        throw new Error(`no reader for ${name}`);
    }
  } finally {
    closeMaps(maps);
  }
}

function placeOf(bytes: Uint8Array, address: number, port: number): SocketAddress {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  return { ip: formatMapped(bytes.subarray(address, address + 16)), port: view.getUint16(port) };
}
