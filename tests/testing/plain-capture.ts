import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { ClusterPlace } from './cluster-places.ts';
import { type FieldReader, programMissing, readWithTshark } from './tshark.ts';

/** Addresses and ports of a packet, or of the packet that an ICMP error is about. */
export interface PlainTuple {
  /** "10.244.0.3:42676", "[fd00::1]:80"; of an ICMP error "10.244.0.3". */
  readonly source: string;
  readonly destination: string;
}

/** A packet as tcpdump has recorded it at one device, and as tshark reads it; of VXLAN the inner one. */
export interface PlainPacket extends PlainTuple {
  readonly place: string;
  readonly device: string;
  readonly direction: 'in' | 'out';
  /** Nanoseconds since 1970. */
  readonly timeNs: bigint;
  /** "10.0.0.1 > 10.0.0.2", the outer addresses; null: not in a tunnel. */
  readonly tunnel: string | null;
  readonly protocol: 'TCP' | 'UDP' | 'ICMP';
  /** The sum of the TCP flags; null: not TCP. */
  readonly flags: number | null;
  /** Distinguishes segments, and errors about segments: their numbers and timestamps. */
  readonly id: string;
  /** Of an ICMP error: the packet that it is about; null: not an error. */
  readonly about: (PlainTuple & { readonly protocol: 'TCP' | 'UDP' | null }) | null;
}

export interface PlainCapture {
  /** Stops, and reads what was captured: by place in the order of capture. Throws if packets were lost. */
  stop(): Promise<PlainPacket[]>;
  /** Stops without reading. */
  cancel(): void;
}

const run = promisify(execFile);
/** How late tcpdump may read its last packets: the kernel hands over a block that is not full after a second. */
const LAST_PACKETS_MS = 2500;

/** Returns why packets cannot be captured here, or false. In CI they must be. */
export const captureMissing = (): string | false => programMissing('tcpdump', 'tshark', 'mergecap');

/** Captures all packets of all devices of the places with tcpdump; resolves when all of them have begun. */
export async function startPlainCapture(places: readonly ClusterPlace[]): Promise<PlainCapture> {
  const folder = mkdtempSync(join(tmpdir(), 'flt-capture-'));
  const fileOf = (index: number) => join(folder, `${index}.pcap`);
  const running = places.map(({ netns }, index) => startTcpdump(netns, fileOf(index)));
  const cancel = () => {
    for (const { child } of running) child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await Promise.all(running.map(({ begun }) => begun));
  } catch (error) {
    cancel();
    throw error;
  }
  return {
    cancel,
    async stop() {
      try {
        const devices = await Promise.all(places.map(({ netns }) => devicesOf(netns)));
        // tcpdump ends without reading what the kernel still has for it.
        await pause(LAST_PACKETS_MS);
        for (const { child } of running) child.kill('SIGINT');
        for (const [index, { ended }] of running.entries())
          assert.match(await ended, /\b0 packets dropped by kernel/, places[index]?.name);
        const merged = join(folder, 'all.pcapng');
        // Interfaces are not merged, so that each one is a file.
        await run('mergecap', ['-I', 'none', '-w', merged, ...places.map((_, index) => fileOf(index))]);
        return await readPackets(merged, (file, index) => {
          const { name, isPort } = devices[file]?.get(index) ?? { name: `if${index}`, isPort: false };
          return { place: places[file]?.name ?? '', device: name, isPort };
        });
      } finally {
        cancel();
      }
    },
  };
}

interface Tcpdump {
  readonly child: ChildProcess;
  readonly begun: Promise<void>;
  /** Resolves to its messages. */
  readonly ended: Promise<string>;
}

function startTcpdump(netns: string, file: string): Tcpdump {
  // Of each packet the device and its direction (LINKTYPE_LINUX_SLL2).
  const options = [
    '-i',
    'any',
    '-y',
    'LINUX_SLL2',
    '--time-stamp-precision',
    'nano',
    '-U',
    '-n',
    '-Z',
    'root',
  ];
  const child = spawn('nsenter', [`--net=${netns}`, 'tcpdump', ...options, '-w', file], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let text = '';
  const begun = Promise.withResolvers<void>();
  child.stderr?.setEncoding('utf8').on('data', (part: string) => {
    text += part;
    if (text.includes('listening on')) begun.resolve();
  });
  const ended = new Promise<string>((resolve) => child.on('close', () => resolve(text)));
  void ended.then(() => begun.reject(new Error(`tcpdump in ${netns} ended: ${text}`)));
  begun.promise.catch(() => {});
  return { child, begun: begun.promise, ended };
}

/** The devices of a namespace, by their indexes. */
async function devicesOf(
  netns: string,
): Promise<Map<number, { readonly name: string; readonly isPort: boolean }>> {
  const { stdout } = await run('nsenter', [`--net=${netns}`, 'ip', '-json', 'link']);
  const links = JSON.parse(stdout) as { ifindex: number; ifname: string; master?: string }[];
  return new Map(
    links.map(({ ifindex, ifname, master }) => [ifindex, { name: ifname, isPort: master !== undefined }]),
  );
}

const FIELDS = [
  ...['frame.interface_id', 'frame.time_epoch', 'frame.protocols', 'sll.ifindex', 'sll.pkttype'],
  ...['ip.src', 'ip.dst', 'ipv6.src', 'ipv6.dst', 'udp.srcport', 'udp.dstport', 'tcp.srcport', 'tcp.dstport'],
  ...['tcp.flags', 'tcp.seq_raw', 'tcp.ack_raw', 'tcp.options.timestamp.tsval', 'icmp.type', 'icmpv6.type'],
] as const;
type Field = (typeof FIELDS)[number];

/** Packet types of packet(7). */
const OTHER_HOST = '3';
const OUTGOING = '4';

async function readPackets(
  file: string,
  deviceOf: (
    file: number,
    index: number,
  ) => Pick<PlainPacket, 'place' | 'device'> & { readonly isPort: boolean },
): Promise<PlainPacket[]> {
  const filter = 'tcp or udp or icmp or icmpv6';
  const found = await readWithTshark(file, FIELDS, { filter });
  return found.flatMap((values): PlainPacket[] => {
    const value = (field: Field) => values(field)[0] ?? '';
    const { isPort, ...seen } = deviceOf(Number(value('frame.interface_id')), Number(value('sll.ifindex')));
    const type = value('sll.pkttype');
    // A frame for another host, which a bridge has flooded to all ports: this host does not take it.
    if (type === OTHER_HOST && !isPort) return [];
    const layers = layersOf(value('frame.protocols').split(':'), values);
    const read = layers && packetOf(layers, values);
    if (!read) return [];
    const [seconds = '', fraction = ''] = value('frame.time_epoch').split('.');
    const timeNs = BigInt(seconds) * 1_000_000_000n + BigInt(fraction.padEnd(9, '0'));
    return [{ ...seen, direction: type === OUTGOING ? 'out' : 'in', timeNs, ...read }];
  });
}

/** An IP header and what is above it. */
interface Layer {
  readonly source: string;
  readonly destination: string;
  above:
    | { readonly protocol: 'tcp' | 'udp'; readonly source: string; readonly destination: string }
    | 'icmp'
    | null;
}

/** Returns the IP headers of a frame, from the outer to the inner one. Null: none. */
function layersOf(protocols: readonly string[], values: FieldReader<Field>): Layer[] | null {
  const next = { ip: 0, ipv6: 0, tcp: 0, udp: 0 };
  const take = (protocol: keyof typeof next, source: Field, destination: Field) => {
    const index = next[protocol]++;
    return { source: values(source)[index] ?? '', destination: values(destination)[index] ?? '' };
  };
  const layers: Layer[] = [];
  for (const protocol of protocols) {
    const last = layers.at(-1);
    if (protocol === 'ip' || protocol === 'ipv6')
      layers.push({ ...take(protocol, `${protocol}.src`, `${protocol}.dst`), above: null });
    else if (last && (protocol === 'tcp' || protocol === 'udp'))
      last.above ??= { protocol, ...take(protocol, `${protocol}.srcport`, `${protocol}.dstport`) };
    else if (last && (protocol === 'icmp' || protocol === 'icmpv6')) last.above ??= 'icmp';
  }
  return layers.length > 0 ? layers : null;
}

function packetOf(
  layers: readonly Layer[],
  values: FieldReader<Field>,
): Omit<PlainPacket, 'place' | 'device' | 'direction' | 'timeNs'> | null {
  const found = layers.findIndex(({ above }) => above === 'icmp');
  const index = found < 0 ? layers.length - 1 : found;
  const packet = layers[index];
  if (!packet?.above) return null;
  const outer = layers[index - 1];
  const tunnel = outer ? `${outer.source} > ${outer.destination}` : null;
  const id = (['tcp.seq_raw', 'tcp.ack_raw', 'tcp.options.timestamp.tsval'] as const)
    .flatMap(values)
    .join(' ');
  if (packet.above === 'icmp') {
    const inner = isError(values) ? layers[index + 1] : undefined;
    const about = inner ? { ...tupleOf(inner), protocol: protocolOf(inner) } : null;
    const { source, destination } = packet;
    return { source, destination, tunnel, protocol: 'ICMP', flags: null, id, about };
  }
  const isUdp = packet.above.protocol === 'udp';
  const flags = isUdp ? null : Number(values('tcp.flags')[0]);
  return { ...tupleOf(packet), tunnel, protocol: isUdp ? 'UDP' : 'TCP', flags, id, about: null };
}

/** ICMP errors that a packet causes: neither questions nor redirects. */
function isError(values: FieldReader<Field>): boolean {
  const [type = ''] = values('icmp.type');
  const [type6 = ''] = values('icmpv6.type');
  return type === '' ? Number(type6) < 128 : ICMP_ERRORS.has(type);
}

/** Destination unreachable, time exceeded. */
const ICMP_ERRORS: ReadonlySet<string> = new Set(['3', '11']);

const protocolOf = ({ above }: Layer): 'TCP' | 'UDP' | null =>
  above === null || above === 'icmp' ? null : above.protocol === 'tcp' ? 'TCP' : 'UDP';

function tupleOf({ source, destination, above }: Layer): PlainTuple {
  if (above === null || above === 'icmp') return { source, destination };
  return { source: endOf(source, above.source), destination: endOf(destination, above.destination) };
}

const endOf = (address: string, port: string) =>
  address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
