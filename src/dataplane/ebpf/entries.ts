import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { addressBytes, formatAddress, type IPFamily, type SocketAddress } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import { be16Port, writeAddress } from '../../nft/encoding.ts';
import type { Protocol, ServiceOptions } from '../../service/model.ts';
import {
  BACKEND,
  BALANCE,
  CONFIG,
  ENDPOINT,
  FLOW,
  FRONTEND,
  FRONTEND_KEY,
  MEMBER,
  MEMBER_KIND,
  MEMBERSHIP,
  PEER,
  PEER_FLAG,
  REROUTE,
  ROUTE,
} from './generated/layout.ts';

/*
 * Encodes and decodes map entries. generated/layout.ts has the offsets; the kernel's byte order is little-endian on all
 * machines that Fairlead supports, ports and addresses are in network order. What is written for every Service or
 * endpoint is encoded in 32-bit words.
 */

export interface RouteEntry {
  /** One of ACTION. */
  readonly action: number;
  /** The first slot of the run. */
  readonly first: number;
  readonly count: number;
}

export interface FrontendEntry {
  readonly id: number;
  readonly affinitySeconds: number;
  /** The result of `balanceOf`. */
  readonly balance: number;
  readonly pod: RouteEntry;
  readonly node: RouteEntry;
}

export const FRONTEND_KEY_WORDS = FRONTEND_KEY.size / 4;
export const FRONTEND_WORDS = FRONTEND.size / 4;
export const ENDPOINT_WORDS = ENDPOINT.size / 4;
/** The bytes 0, 0, 0xff, 0xff. */
const MAPPED_WORD = 0xffff0000;
const MAPPED_PREFIX = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff);
const KEY_PORT = FRONTEND_KEY.port / 4;
const SLOT_PORT = ENDPOINT.port / 4;
const SLOT_OWNER = ENDPOINT.owner / 4;
const SLOT_BACKEND = ENDPOINT.backend / 4;

/** Returns bytes as text that can be a key of a map. */
export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');
export const bytesOfText = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'));

export const viewOf = ({ buffer, byteOffset, byteLength }: Uint8Array): DataView =>
  new DataView(buffer, byteOffset, byteLength);

/**
 * Returns the 16 bytes of an address, IPv4 as ::ffff:a.b.c.d. Throws FairleadError EINVAL for other text.
 */
export function mappedAddress(text: string): Uint8Array {
  const bytes = addressBytes(text);
  if (!bytes) {
    throw new FairleadError(`${JSON.stringify(text)} is not an IP address`, {
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

/** Returns the text of a 16-byte address, as IPv4 if it begins with ::ffff. */
export function formatMapped(bytes: Uint8Array): string {
  const isIpv4 = MAPPED_PREFIX.every((byte, i) => bytes[i] === byte);
  return formatAddress(isIpv4 ? bytes.subarray(12) : bytes);
}

/**
 * Writes struct frontend_key, which is also the key of an endpoint in `BackendNumbers` and in `removed_backends`. Throws
 * FairleadError EINVAL for an address of another family.
 */
export function writeKey(
  out: Uint32Array,
  at: number,
  family: IPFamily,
  { ip, port }: { readonly ip: string; readonly port: number },
  protocol: Protocol,
): void {
  if (family === 'ipv6') writeAddress(ip, family, out, at);
  else {
    out[at] = 0;
    out[at + 1] = 0;
    out[at + 2] = MAPPED_WORD;
    writeAddress(ip, family, out, at + 3);
  }
  out[at + KEY_PORT] = be16Port(port) | (PROTOCOL_NUMBER[protocol] << 16);
}

/** Returns the protocol in a key written by `writeKey`. */
export const protocolOfKey = (words: Uint32Array): number => (words[KEY_PORT] ?? 0) >>> 16;

/** Returns "10.96.0.1 port 443 protocol 6" for a frontend's key in latin1. */
export function keyText(key: string): string {
  const bytes = new Uint8Array(Buffer.from(key, 'latin1'));
  const port = viewOf(bytes).getUint16(FRONTEND_KEY.port);
  return `${formatMapped(bytes.subarray(0, FRONTEND_KEY.address + 16))} port ${port} protocol ${bytes[FRONTEND_KEY.protocol]}`;
}

const BALANCES = {
  random: BALANCE.RANDOM,
  'least-connections': BALANCE.LEAST_CONNECTIONS,
  maglev: BALANCE.MAGLEV,
} as const;

/** How a frontend's endpoints are chosen, as the programs read it. */
export const balanceOf = ({ balance, failover }: Pick<ServiceOptions, 'balance' | 'failover'>): number =>
  BALANCES[balance] | (failover ? 0 : BALANCE.NO_FAILOVER);

/** Writes struct frontend. */
export function writeFrontend(out: Uint32Array, at: number, entry: FrontendEntry): void {
  out[at + FRONTEND.id / 4] = entry.id;
  out[at + FRONTEND.affinity_seconds / 4] = entry.affinitySeconds;
  out[at + FRONTEND.balance / 4] = entry.balance;
  writeRoute(out, at + FRONTEND.routes / 4, entry.pod);
  writeRoute(out, at + (FRONTEND.routes + ROUTE.size) / 4, entry.node);
}

function writeRoute(out: Uint32Array, at: number, { action, first, count }: RouteEntry): void {
  out[at + ROUTE.action / 4] = action;
  out[at + ROUTE.first / 4] = first;
  out[at + ROUTE.count / 4] = count;
}

export function readFrontend(value: Uint8Array): FrontendEntry {
  const view = viewOf(value);
  const route = (at: number): RouteEntry => ({
    action: view.getUint32(at + ROUTE.action, true),
    first: view.getUint32(at + ROUTE.first, true),
    count: view.getUint32(at + ROUTE.count, true),
  });
  return {
    id: view.getUint32(FRONTEND.id, true),
    affinitySeconds: view.getUint32(FRONTEND.affinity_seconds, true),
    balance: view.getUint32(FRONTEND.balance, true),
    pod: route(FRONTEND.routes),
    node: route(FRONTEND.routes + ROUTE.size),
  };
}

/** Writes struct endpoint (a slot) at word `at`, for the endpoint with the key (`writeKey`) at word `keyAt`. */
export function writeSlot(
  out: Uint32Array,
  at: number,
  keys: Uint32Array,
  keyAt: number,
  owner: number,
  backend: number,
): void {
  for (let i = 0; i < 4; i++) out[at + i] = keys[keyAt + i] ?? 0;
  // Without the protocol, which is the frontend's.
  out[at + SLOT_PORT] = (keys[keyAt + KEY_PORT] ?? 0) & 0xffff;
  out[at + SLOT_OWNER] = owner;
  out[at + SLOT_BACKEND] = backend;
}

/** The key (`writeKey`) and the number of the endpoint in a slot of a frontend with this protocol. */
export function readSlot(slot: Uint8Array, protocol: number): { words: Uint32Array; number: number } {
  const words = new Uint32Array(slot.slice().buffer);
  const number = words[SLOT_BACKEND] ?? 0;
  words[KEY_PORT] = ((words[SLOT_PORT] ?? 0) & 0xffff) | (protocol << 16);
  return { words: words.subarray(0, FRONTEND_KEY_WORDS), number };
}

/** The key (`writeKey`) and the number of a spared endpoint, which only UDP has; null for other members. */
export function readSpared(
  key: Uint8Array,
  value: Uint8Array,
): { words: Uint32Array; number: number } | null {
  const view = viewOf(value);
  if (view.getUint32(MEMBERSHIP.kind, true) !== MEMBER_KIND.SPARED) return null;
  const words = new Uint32Array(FRONTEND_KEY_WORDS);
  const bytes = new Uint8Array(words.buffer);
  bytes.set(key.subarray(MEMBER.address, MEMBER.address + 16), FRONTEND_KEY.address);
  bytes.set(key.subarray(MEMBER.port, MEMBER.port + 2), FRONTEND_KEY.port);
  bytes[FRONTEND_KEY.protocol] = PROTOCOL_NUMBER.UDP;
  return { words, number: view.getUint32(MEMBERSHIP.backend, true) };
}

/** Encodes struct membership, the value of a member. */
export function memberValue(backend: number, isSpared: boolean): Uint8Array {
  const out = new Uint8Array(MEMBERSHIP.size);
  const view = viewOf(out);
  view.setUint32(MEMBERSHIP.backend, backend, true);
  view.setUint32(MEMBERSHIP.kind, isSpared ? MEMBER_KIND.SPARED : MEMBER_KIND.IN_RUN, true);
  return out;
}

/** Key of an endpoint in the run of slots that begins at `first`. */
export function memberKey(first: number, { ip, port }: SocketAddress): Uint8Array {
  const out = new Uint8Array(MEMBER.size);
  const view = viewOf(out);
  view.setUint32(MEMBER.first, first, true);
  out.set(mappedAddress(ip), MEMBER.address);
  view.setUint16(MEMBER.port, port);
  return out;
}

export interface Settings {
  /** Cookie of the node's own network namespace. */
  readonly nodeCookie: bigint;
  /** Jiffies until a connection's first packet is retransmitted; 0: the kernel's own second. */
  readonly synTimeout: number;
  /** Endpoints that fail are ejected. */
  readonly ejection: boolean;
  /** Pending connections are rerouted. */
  readonly reroute: boolean;
  /** The map `removed_backends` has entries. */
  readonly removedBackends: boolean;
  /** Whether there are subscribers to the events of every connection. */
  readonly subscribers: boolean;
}

/** Encodes struct config. */
export function configValue(settings: Settings): Uint8Array {
  const out = new Uint8Array(CONFIG.size);
  const view = viewOf(out);
  view.setBigUint64(CONFIG.node_cookie, settings.nodeCookie, true);
  view.setUint32(CONFIG.syn_timeout, settings.synTimeout, true);
  view.setUint32(CONFIG.ejection, Number(settings.ejection), true);
  view.setUint32(CONFIG.reroute, Number(settings.reroute), true);
  view.setUint32(CONFIG.removed_backends, Number(settings.removedBackends), true);
  view.setUint32(CONFIG.subscribers, Number(settings.subscribers), true);
  return out;
}

/** Returns true if an endpoint has failed and not answered since; `words` are struct backend. */
export function hasFailed(words: Uint32Array): boolean {
  const at = (offset: number) => words[offset / 4] ?? 0;
  const wide = (offset: number) => at(offset) | at(offset + 4);
  return (wide(BACKEND.ejected_until) | wide(BACKEND.failed_at) | at(BACKEND.ejections)) !== 0;
}

/** Returns the time at which a rerouted flow's entry expires, in monotonic nanoseconds; 0n: never. */
export const rerouteExpiry = (value: Uint8Array): bigint => viewOf(value).getBigUint64(REROUTE.until, true);

/** An address of 16 bytes, IPv4 as ::ffff:a.b.c.d, and a port. */
export interface MappedEndpoint {
  readonly address: Uint8Array;
  readonly port: number;
}

/** Reads an address and a port at these offsets. */
export const readEndpoint = (bytes: Uint8Array, address: number, port: number): MappedEndpoint => ({
  address: bytes.subarray(address, address + 16),
  port: viewOf(bytes).getUint16(port),
});

/** The endpoint that a socket is connected to, and whether its packets go to another one. */
export interface Peer extends MappedEndpoint {
  readonly rerouted: boolean;
}

export const readPeer = (value: Uint8Array): Peer => ({
  ...readEndpoint(value, PEER.endpoint, PEER.endpoint_port),
  rerouted: (viewOf(value).getUint32(PEER.flags, true) & PEER_FLAG.PEER_REROUTED) !== 0,
});

/**
 * Returns the key of a TCP connection from the view of its client's socket. Throws FairleadError EINVAL if
 * `ip` is not an address.
 */
export function flowKey(ip: string, port: number, server: MappedEndpoint): Uint8Array {
  const out = new Uint8Array(FLOW.size);
  const view = viewOf(out);
  out.set(mappedAddress(ip), FLOW.client);
  out.set(server.address, FLOW.server);
  view.setUint16(FLOW.client_port, port);
  view.setUint16(FLOW.server_port, server.port);
  out[FLOW.protocol] = PROTOCOL_NUMBER.TCP;
  return out;
}

/** Returns the endpoint that a rerouted flow's packets go to. */
export const readRerouteTarget = (value: Uint8Array): MappedEndpoint =>
  readEndpoint(value, REROUTE.address, REROUTE.port);
