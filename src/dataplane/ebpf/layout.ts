import type { MapDefinition } from '../../kernel/bpf/map.ts';
import { MMAPABLE, NO_PREALLOC } from '../../kernel/bpf/map.ts';
import type { AttachPoint, ProgramSource } from '../../kernel/bpf/program.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { addressBytes, type IPFamily } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import { be16Port, writeAddress } from '../../nft/encoding.ts';
import type { Protocol } from '../../service/model.ts';

/*
 * The bytes that the agent shares with the programs: bpf/maps.h has the same structures. The kernel's byte order is
 * that of the machine, which is little-endian wherever these programs run; ports and addresses are in network order.
 */

export const ACTION = { pass: 0, forward: 1, refuse: 2 } as const;
export const BALANCE = { random: 0, 'least-connections': 1, maglev: 2 } as const;

/** Beside a balance: endpoints are tried whatever happened to them. */
export const NO_FAILOVER = 0x100;

export const FRONTEND_KEY_SIZE = 20;
export const FRONTEND_SIZE = 36;
export const ENDPOINT_SIZE = 28;
export const MEMBER_KEY_SIZE = 24;
export const BACKEND_SIZE = 40;
export const DEPARTED_KEY_SIZE = 20;
/** How many endpoints are remembered that have left: sockets may be connected to them still. */
export const MOST_DEPARTED = 4096;
const FLOW_SIZE = 40;
const RESCUE_SIZE = 32;
const CONFIG_SIZE = 32;
const STATE_SIZE = 8;
export const EVENT_SIZE = 72;
/** Where a backend's generation stands in its entry. */
export const GENERATION_AT = 32;

export interface RouteEntry {
  readonly action: number;
  /** The run of slots. */
  readonly first: number;
  readonly count: number;
}

export interface FrontendEntry {
  readonly id: number;
  readonly affinitySeconds: number;
  readonly balance: number;
  readonly pod: RouteEntry;
  readonly node: RouteEntry;
}

/** The bytes 0, 0, 0xff, 0xff. */
const MAPPED_WORD = 0xffff0000;
const MAPPED_PREFIX = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff);

/** 16 bytes of an address; IPv4 as ::ffff:a.b.c.d. Throws FairleadError when it is none. */
export function mappedAddress(text: string): Uint8Array {
  const bytes = addressBytes(text);
  if (!bytes) {
    throw new FairleadError(`${JSON.stringify(text)} is no IP address`, {
      op: 'encode BPF map element',
      code: 'EINVAL',
      object: text,
    });
  }
  if (bytes.length === 16) return bytes;
  const out = new Uint8Array(16);
  out.set(MAPPED_PREFIX);
  out.set(bytes, 12);
  return out;
}

/** Words of a frontend's key, and of its value. */
export const FRONTEND_KEY_WORDS = FRONTEND_KEY_SIZE / 4;
export const FRONTEND_WORDS = FRONTEND_SIZE / 4;

/** Writes the key of a frontend, or of an endpoint as something with a number. Throws FairleadError
 * when the address is none of the family. */
export function writeKey(
  out: Uint32Array,
  at: number,
  family: IPFamily,
  { ip, port }: { readonly ip: string; readonly port: number },
  protocol: Protocol,
): void {
  writeMapped(out, at, family, ip);
  out[at + 4] = be16Port(port) | (PROTOCOL_NUMBER[protocol] << 16);
}

/** Writes a frontend's value. */
export function writeFrontend(out: Uint32Array, at: number, entry: FrontendEntry): void {
  const { id, affinitySeconds, balance, pod, node } = entry;
  out[at] = id;
  out[at + 1] = affinitySeconds;
  out[at + 2] = balance;
  out[at + 3] = pod.action;
  out[at + 4] = pod.first;
  out[at + 5] = pod.count;
  out[at + 6] = node.action;
  out[at + 7] = node.first;
  out[at + 8] = node.count;
}

export function readFrontend(value: Uint8Array): FrontendEntry {
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  const at = (word: number) => view.getUint32(word * 4, true);
  const route = (word: number): RouteEntry => ({
    action: at(word),
    first: at(word + 1),
    count: at(word + 2),
  });
  return { id: at(0), affinitySeconds: at(1), balance: at(2), pod: route(3), node: route(6) };
}

/** A slot, as words: address, port, owner, backend. */
export const ENDPOINT_WORDS = ENDPOINT_SIZE / 4;

/** Writes one slot at word `at`, for the endpoint whose key (`writeKey`) this is. */
export function writeSlot(
  out: Uint32Array,
  at: number,
  key: Uint32Array,
  owner: number,
  backend: number,
): void {
  for (let i = 0; i < 4; i++) out[at + i] = key[i] ?? 0;
  // The protocol is the frontend's.
  out[at + 4] = (key[4] ?? 0) & 0xffff;
  out[at + 5] = owner;
  out[at + 6] = backend;
}

function writeMapped(out: Uint32Array, at: number, family: IPFamily, ip: string): void {
  if (family === 'ipv6') {
    writeAddress(ip, family, out, at);
    return;
  }
  out[at] = 0;
  out[at + 1] = 0;
  out[at + 2] = MAPPED_WORD;
  writeAddress(ip, family, out, at + 3);
}

/** Key of an endpoint in the run of slots that begins at `first`. */
export function memberKey(first: number, address: Uint8Array, port: number): Uint8Array {
  const out = new Uint8Array(MEMBER_KEY_SIZE);
  const view = new DataView(out.buffer);
  view.setUint32(0, first, true);
  out.set(address, 4);
  view.setUint16(20, port);
  return out;
}

export interface Settings {
  /** Cookie of the node's own network namespace. */
  readonly nodeCookie: bigint;
  /** Jiffies until a connection's first packet is sent again; 0: the kernel's own second. */
  readonly synTimeout: number;
  /** For how long one suspicion keeps new connections away. */
  readonly ejectMs: number;
  /** Connections under way are re-targeted. */
  readonly rescue: boolean;
  /** There are endpoints that have left while sockets may be connected to them. */
  readonly departed: boolean;
  /** Somebody reads of every connection. */
  readonly readers: boolean;
}

export function configValue(settings: Settings): Uint8Array {
  const { nodeCookie, synTimeout, ejectMs, rescue, departed, readers } = settings;
  const out = new Uint8Array(CONFIG_SIZE);
  const view = new DataView(out.buffer);
  view.setBigUint64(0, nodeCookie, true);
  view.setUint32(8, synTimeout, true);
  view.setUint32(12, ejectMs, true);
  view.setUint32(16, rescue ? 1 : 0, true);
  view.setUint32(20, departed ? 1 : 0, true);
  view.setUint32(24, readers ? 1 : 0, true);
  return out;
}

/** How many entries the maps that grow with the cluster have. */
export interface Capacity {
  readonly frontends: number;
  /** Slots. */
  readonly endpoints: number;
  readonly backends: number;
  /** Endpoints of frontends with affinity. */
  readonly members: number;
}

export type MapName =
  | 'frontends'
  | 'endpoints'
  | 'backends'
  | 'config'
  | 'affinities'
  | 'members'
  | 'peers'
  | 'udp_talks'
  | 'pending_flows'
  | 'rescues'
  | 'departed'
  | 'state'
  | 'events';

/** Room for connections that are being opened at the same time: sets of a hash's value, which each have few. */
const PENDING_SETS = 1024;
const PENDING_WAYS = 4;
const PENDING_SIZE = FLOW_SIZE + FRONTEND_KEY_SIZE + 16;
/** And for those that go elsewhere: two for each. */
const RESCUES = 1 << 15;
/** Bytes of the ring that events wait in: about 3600. */
export const EVENTS_SIZE = 1 << 18;

export function mapDefinitions(capacity: Capacity): Readonly<Record<MapName, MapDefinition>> {
  return {
    frontends: {
      name: 'fl_frontends',
      kind: 'hash',
      keySize: FRONTEND_KEY_SIZE,
      valueSize: FRONTEND_SIZE,
      maxEntries: capacity.frontends,
      flags: NO_PREALLOC,
    },
    endpoints: {
      name: 'fl_endpoints',
      kind: 'array',
      keySize: 4,
      valueSize: ENDPOINT_SIZE,
      maxEntries: capacity.endpoints,
      flags: MMAPABLE,
    },
    backends: {
      name: 'fl_backends',
      kind: 'array',
      keySize: 4,
      valueSize: BACKEND_SIZE,
      maxEntries: capacity.backends,
      flags: MMAPABLE,
    },
    config: { name: 'fl_config', kind: 'array', keySize: 4, valueSize: CONFIG_SIZE, maxEntries: 1 },
    affinities: { name: 'fl_affinities', kind: 'lruHash', keySize: 16, valueSize: 32, maxEntries: 1 << 16 },
    members: {
      name: 'fl_members',
      kind: 'hash',
      keySize: MEMBER_KEY_SIZE,
      valueSize: 4,
      maxEntries: capacity.members,
      flags: NO_PREALLOC,
    },
    peers: { name: 'fl_peers', kind: 'skStorage', keySize: 4, valueSize: 56, maxEntries: 0 },
    udp_talks: { name: 'fl_udp_talks', kind: 'skStorage', keySize: 4, valueSize: 36 * 8 + 8, maxEntries: 0 },
    pending_flows: {
      name: 'fl_pending',
      kind: 'array',
      keySize: 4,
      valueSize: PENDING_WAYS * (8 + PENDING_SIZE),
      maxEntries: PENDING_SETS,
    },
    rescues: {
      name: 'fl_rescues',
      kind: 'lruHash',
      keySize: FLOW_SIZE,
      valueSize: RESCUE_SIZE,
      maxEntries: RESCUES,
    },
    departed: {
      name: 'fl_departed',
      kind: 'lruHash',
      keySize: DEPARTED_KEY_SIZE,
      valueSize: 4,
      maxEntries: MOST_DEPARTED,
    },
    state: { name: 'fl_state', kind: 'array', keySize: 4, valueSize: STATE_SIZE, maxEntries: 2 },
    events: { name: 'fl_events', kind: 'ringbuf', keySize: 0, valueSize: 0, maxEntries: EVENTS_SIZE },
  };
}

/** What a program of the objects is, and where it belongs. */
export interface Hook {
  readonly type: ProgramSource['type'];
  /** `cgroup`: once, for the processes of a control group; `device`: for the packets of each device. */
  readonly place: 'cgroup' | 'device';
  readonly attach: AttachPoint;
}

const socket = (attach: AttachPoint): Hook => ({ type: 'sockAddress', place: 'cgroup', attach });

/** By the section of the objects that the program is in. */
export const HOOKS: Readonly<Record<string, Hook>> = {
  'cgroup/connect4': socket('connect4'),
  'cgroup/connect6': socket('connect6'),
  'cgroup/sendmsg4': socket('sendmsg4'),
  'cgroup/sendmsg6': socket('sendmsg6'),
  'cgroup/recvmsg4': socket('recvmsg4'),
  'cgroup/recvmsg6': socket('recvmsg6'),
  'cgroup/getpeername4': socket('getpeername4'),
  'cgroup/getpeername6': socket('getpeername6'),
  sockops: { type: 'sockOps', place: 'cgroup', attach: 'sockOps' },
  'cgroup_skb/egress': { type: 'cgroupSkb', place: 'cgroup', attach: 'inetEgress' },
  'tc/ingress': { type: 'tc', place: 'device', attach: 'tcxIngress' },
  'tc/egress': { type: 'tc', place: 'device', attach: 'tcxEgress' },
};

export type DeviceHook = 'tcxIngress' | 'tcxEgress';

/** Elements of the map `state`: whether there are any. */
export const STATE = { rescues: 0, failures: 1 } as const;

/** Whether an endpoint has failed and not answered since; `words` are a backend's. */
export function hasFailed(words: Uint32Array): boolean {
  // suspect_until, failed_at, failures.
  return ((words[0] ?? 0) | (words[1] ?? 0) | (words[2] ?? 0) | (words[3] ?? 0) | (words[6] ?? 0)) !== 0;
}

/** When a rescued flow's entry ends, in monotonic nanoseconds; 0n while it lives. */
export function rescueEnd(value: Uint8Array): bigint {
  return new DataView(value.buffer, value.byteOffset, value.byteLength).getBigUint64(24, true);
}

/** An address of 16 bytes, IPv4 as ::ffff:a.b.c.d, and a port. */
export interface MappedEndpoint {
  readonly address: Uint8Array;
  readonly port: number;
}

/** The endpoint that a socket believes in, and whether its packets go to another one. */
export interface Peer extends MappedEndpoint {
  readonly rescued: boolean;
}

const PEER_RESCUED = 4;
const PEER_ENDPOINT_AT = 24;
const PEER_PORT_AT = 42;
const PEER_FLAGS_AT = 52;

export function readPeer(value: Uint8Array): Peer {
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  return {
    address: value.subarray(PEER_ENDPOINT_AT, PEER_ENDPOINT_AT + 16),
    port: view.getUint16(PEER_PORT_AT),
    rescued: (view.getUint32(PEER_FLAGS_AT, true) & PEER_RESCUED) !== 0,
  };
}

/** Key of a connection as its client's socket sees it. Throws FairleadError when `ip` is no address. */
export function flowKey(ip: string, port: number, server: MappedEndpoint): Uint8Array {
  const out = new Uint8Array(FLOW_SIZE);
  const view = new DataView(out.buffer);
  out.set(mappedAddress(ip), 0);
  out.set(server.address, 16);
  view.setUint16(32, port);
  view.setUint16(34, server.port);
  out[36] = PROTOCOL_NUMBER.TCP;
  return out;
}

/** Where the packets of a rescued flow go. */
export function readRescueTarget(value: Uint8Array): MappedEndpoint {
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  return { address: value.subarray(0, 16), port: view.getUint16(16) };
}
