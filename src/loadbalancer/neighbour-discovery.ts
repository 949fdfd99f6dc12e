import { ETHERTYPE, type FilterInstruction } from '../kernel/packet-socket.ts';
import { addressBytes, formatAddress } from '../lib/address.ts';
import { ethernetFrame, type Mac } from './ethernet.ts';

/** A Neighbour Solicitation or Advertisement (RFC 4861, sections 4.3 and 4.4). */
export interface NeighbourMessage {
  readonly type: 'solicitation' | 'advertisement';
  readonly source: string;
  readonly destination: string;
  readonly target: string;
  /** Advertisements: an answer to a solicitation; replaces the receiver's entry. */
  readonly solicited: boolean;
  readonly override: boolean;
  /** Source (solicitation) or target (advertisement) link-layer address, if the message has that option. */
  readonly mac: Mac | null;
  /** The source address of the frame. */
  readonly frameSource: Mac;
}

const NEXT_HEADER_ICMPV6 = 58;
const SOLICITATION = 135;
const ADVERTISEMENT = 136;
const OPTION_SOURCE = 1;
const OPTION_TARGET = 2;
const SOLICITED = 0x40;
const OVERRIDE = 0x20;
const ALL_NODES = 'ff02::1';
const UNSPECIFIED = '::';
/**
 * Offset of ICMPv6 in the frame, after the Ethernet and the IPv6 header; messages with extension headers
 * are ignored.
 */
const ICMP_AT = 14 + 40;

/** Passes Neighbour Solicitations and Advertisements. */
export const NEIGHBOUR_FILTER: readonly FilterInstruction[] = [
  // ldb [20]: next header ICMPv6; ldb [54]: its type
  [0x30, 0, 0, 20],
  [0x15, 0, 4, NEXT_HEADER_ICMPV6],
  [0x30, 0, 0, ICMP_AT],
  [0x15, 1, 0, SOLICITATION],
  [0x15, 0, 1, ADVERTISEMENT],
  [0x06, 0, 0, 0xffff],
  [0x06, 0, 0, 0],
];

/** Parses an Ethernet frame; returns null for messages to ignore by RFC 4861, sections 7.1.1 and 7.1.2. */
export function readNeighbourMessage(frame: Uint8Array): NeighbourMessage | null {
  if (frame.length < ICMP_AT + 24) return null;
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  const length = view.getUint16(18);
  if (view.getUint16(12) !== ETHERTYPE.ipv6 || frame[20] !== NEXT_HEADER_ICMPV6 || frame[21] !== 255)
    return null;
  if (length < 24 || frame.length < ICMP_AT + length) return null;
  const kind = frame[ICMP_AT];
  if ((kind !== SOLICITATION && kind !== ADVERTISEMENT) || frame[ICMP_AT + 1] !== 0) return null;
  const source = frame.subarray(22, 38);
  const destination = frame.subarray(38, 54);
  const message = frame.subarray(ICMP_AT, ICMP_AT + length);
  const target = message.subarray(8, 24);
  if (target[0] === 0xff || checksum(source, destination, message) !== 0) return null;
  const wanted = kind === SOLICITATION ? OPTION_SOURCE : OPTION_TARGET;
  let mac: Mac | null = null;
  for (let at = 24; at < message.length; ) {
    const size = (message[at + 1] ?? 0) * 8;
    if (size === 0 || at + size > message.length) return null;
    if (message[at] === wanted && size >= 8) mac = message.slice(at + 2, at + 8);
    at += size;
  }
  const unspecified = source.every((byte) => byte === 0);
  if (kind === SOLICITATION && unspecified && (mac !== null || destination[0] !== 0xff)) return null;
  const flags = message[4] ?? 0;
  return {
    type: kind === SOLICITATION ? 'solicitation' : 'advertisement',
    source: formatAddress(source),
    destination: formatAddress(destination),
    target: formatAddress(target),
    solicited: kind === ADVERTISEMENT && (flags & SOLICITED) !== 0,
    override: kind === ADVERTISEMENT && (flags & OVERRIDE) !== 0,
    mac,
    frameSource: frame.slice(6, 12),
  };
}

/** Returns the answer to a solicitation, with the target's `mac`. To all nodes if the sender has no address yet (duplicate detection). */
export function neighbourReply(solicitation: NeighbourMessage, mac: Mac): Uint8Array {
  if (solicitation.source === UNSPECIFIED) return unsolicitedAdvertisement(solicitation.target, mac);
  return advertisementFrame(
    solicitation.mac ?? solicitation.frameSource,
    mac,
    solicitation.target,
    solicitation.source,
    SOLICITED | OVERRIDE,
  );
}

/** Returns an unsolicited advertisement of `address` at `mac` to all nodes. */
export function unsolicitedAdvertisement(address: string, mac: Mac): Uint8Array {
  return advertisementFrame(multicastMac(ALL_NODES), mac, address, ALL_NODES, OVERRIDE);
}

/** Returns a solicitation for `target` from `source`. */
export function solicitationFrame(target: string, source: string, mac: Mac): Uint8Array {
  const group = solicitedNodeGroup(target);
  return neighbourFrame(multicastMac(group), mac, source, group, SOLICITATION, 0, target, OPTION_SOURCE);
}

/** Returns the solicited-node multicast group of an address (RFC 4291, section 2.7.1). */
export function solicitedNodeGroup(address: string): string {
  const bytes = addressBytes(address) ?? new Uint8Array(16);
  const group = addressBytes('ff02::1:ff00:0') ?? new Uint8Array(16);
  group.set(bytes.subarray(13), 13);
  return formatAddress(group);
}

/** Returns the MAC of a multicast group (RFC 2464, section 7). */
function multicastMac(group: string): Mac {
  const bytes = addressBytes(group) ?? new Uint8Array(16);
  return Uint8Array.of(0x33, 0x33, ...bytes.subarray(12));
}

function advertisementFrame(to: Mac, mac: Mac, address: string, destination: string, flags: number) {
  return neighbourFrame(to, mac, address, destination, ADVERTISEMENT, flags, address, OPTION_TARGET);
}

function neighbourFrame(
  to: Mac,
  mac: Mac,
  source: string,
  destination: string,
  kind: number,
  flags: number,
  target: string,
  option: number,
): Uint8Array {
  const message = new Uint8Array(32);
  message.set([kind, 0, 0, 0, flags, 0, 0, 0]);
  message.set(addressBytes(target) ?? [], 8);
  message.set([option, 1], 24);
  message.set(mac, 26);
  const from = addressBytes(source) ?? new Uint8Array(16);
  const until = addressBytes(destination) ?? new Uint8Array(16);
  const sum = checksum(from, until, message);
  message[2] = sum >> 8;
  message[3] = sum & 0xff;
  const packet = new Uint8Array(40 + message.length);
  packet.set([0x60, 0, 0, 0, 0, message.length, NEXT_HEADER_ICMPV6, 255]);
  packet.set(from, 8);
  packet.set(until, 24);
  packet.set(message, 40);
  return ethernetFrame(to, mac, ETHERTYPE.ipv6, packet);
}

/**
 * Returns the Internet checksum over the pseudo-header and the message (RFC 8200, section 8.1); 0 for a
 * message with a valid checksum.
 */
function checksum(source: Uint8Array, destination: Uint8Array, message: Uint8Array): number {
  let sum = message.length + NEXT_HEADER_ICMPV6;
  for (const part of [source, destination, message]) {
    for (let i = 0; i < part.length; i += 2) sum += ((part[i] ?? 0) << 8) | (part[i + 1] ?? 0);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
