import { addressBytes } from '../../src/lib/address.ts';

/** Ethernet frames as an attacker writes them, with the checksums that a kernel compares. */

export const ETHERTYPE = { ipv4: 0x0800, arp: 0x0806, vlan: 0x8100, qinq: 0x88a8, ipv6: 0x86dd } as const;
export const PROTOCOL = {
  hopByHop: 0,
  icmp: 1,
  ipv4: 4,
  tcp: 6,
  udp: 17,
  ipv6: 41,
  routing: 43,
  fragment: 44,
  authentication: 51,
  icmpv6: 58,
  destinationOptions: 60,
  sctp: 132,
} as const;
export const BROADCAST = 'ff:ff:ff:ff:ff:ff';
export const UNSPECIFIED_MAC = '00:00:00:00:00:00';

const MAC_LENGTH = 6;

export const macOf = (text: string): Uint8Array =>
  Uint8Array.from(text.split(':'), (part) => Number.parseInt(part, 16)).subarray(0, MAC_LENGTH);

export function bytesOf(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (!bytes) throw new Error(`${address} is not an address`);
  return bytes;
}

export const isV6 = (address: string) => address.includes(':');

/** The Ethernet address of a multicast or broadcast address (RFC 1112, RFC 2464). */
export function groupMac(address: string): string {
  const bytes = bytesOf(address);
  const hex = (list: ArrayLike<number>) => Array.from(list, (byte) => byte.toString(16).padStart(2, '0'));
  if (bytes.length === 16) return ['33', '33', ...hex(bytes.subarray(12))].join(':');
  if ((bytes[0] ?? 0) >> 4 !== 14) return BROADCAST;
  return ['01', '00', '5e', ...hex([(bytes[1] ?? 0) & 0x7f, bytes[2] ?? 0, bytes[3] ?? 0])].join(':');
}

export function join(...parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts.map((part) => Uint8Array.from(part))));
}

export const be16 = (value: number): number[] => [(value >> 8) & 0xff, value & 0xff];

/** The internet checksum (RFC 1071). */
function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += ((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

function withChecksum(
  source: string,
  destination: string,
  protocol: number,
  at: number,
  bytes: Uint8Array,
): Uint8Array {
  const pseudo = join(bytesOf(source), bytesOf(destination), [0, 0], be16(bytes.length), [0, protocol]);
  const done = bytes.slice();
  done.set(be16(checksum(join(pseudo, bytes)) || 0xffff), at);
  return done;
}

export interface Ends {
  readonly source: string;
  readonly destination: string;
}

export const ends = (source: string, destination: string): Ends => ({ source, destination });

export function udp(
  { source, destination }: Ends,
  port: number,
  payload: Uint8Array,
  sourcePort = 40_000,
): Uint8Array {
  const bytes = join(be16(sourcePort), be16(port), be16(8 + payload.length), [0, 0], payload);
  return withChecksum(source, destination, PROTOCOL.udp, 6, bytes);
}

export function icmpv6({ source, destination }: Ends, type: number, body: Uint8Array): Uint8Array {
  return withChecksum(source, destination, PROTOCOL.icmpv6, 2, join([type, 0, 0, 0], body));
}

/** A TCP segment without options. */
export function tcp(
  { source, destination }: Ends,
  port: number,
  flags: number,
  payload: Uint8Array,
): Uint8Array {
  const numbers = [0, 0, 0, 1, 0, 0, 0, 1];
  const bytes = join(be16(40_000), be16(port), numbers, [0x50, flags], be16(1024), [0, 0, 0, 0], payload);
  return withChecksum(source, destination, PROTOCOL.tcp, 16, bytes);
}

export function icmp(type: number, body: Uint8Array): Uint8Array {
  const bytes = join([type, 0, 0, 0], body);
  bytes.set(be16(checksum(bytes)), 2);
  return bytes;
}

export interface IpOptions {
  /** The type of service, or traffic class. */
  readonly trafficClass?: number;
  /** IPv4: the header's options, a multiple of four bytes. */
  readonly options?: Uint8Array;
  /** IPv4: the offset of a fragment in units of eight bytes, and whether more follow. */
  readonly fragment?: { readonly offset: number; readonly more: boolean };
  readonly hopLimit?: number;
}

/** An IP packet of the addresses' family. */
export function ip(
  { source, destination }: Ends,
  protocol: number,
  payload: Uint8Array,
  { options = new Uint8Array(0), fragment, hopLimit = 64, trafficClass = 0 }: IpOptions = {},
): Uint8Array {
  if (isV6(source))
    return join(
      [0x60 | (trafficClass >> 4), (trafficClass & 0xf) << 4, 0, 0],
      be16(payload.length),
      [protocol, hopLimit],
      bytesOf(source),
      bytesOf(destination),
      payload,
    );
  const length = 20 + options.length;
  const flags = fragment ? (fragment.more ? 0x2000 : 0) | fragment.offset : 0;
  const header = join(
    [0x40 | (length / 4), trafficClass],
    be16(length + payload.length),
    [0x12, 0x34],
    be16(flags),
    [hopLimit, protocol, 0, 0],
    bytesOf(source),
    bytesOf(destination),
    options,
  );
  header.set(be16(checksum(header)), 10);
  return join(header, payload);
}

export interface Macs {
  readonly from: string;
  readonly to: string;
}

export const ethernet = ({ from, to }: Macs, ethertype: number, payload: Uint8Array): Uint8Array =>
  join(macOf(to), macOf(from), be16(ethertype), payload);

/** An IP packet in a frame. */
export const ipFrame = (macs: Macs, packet: Uint8Array): Uint8Array =>
  ethernet(macs, (packet[0] ?? 0) >> 4 === 6 ? ETHERTYPE.ipv6 : ETHERTYPE.ipv4, packet);

export interface ArpFields {
  readonly operation: 'request' | 'reply';
  readonly senderMac: string;
  readonly senderIp: string;
  readonly targetMac: string;
  readonly targetIp: string;
}

export const arp = (fields: ArpFields): Uint8Array =>
  join(
    [0, 1, 8, 0, 6, 4, 0, fields.operation === 'request' ? 1 : 2],
    macOf(fields.senderMac),
    bytesOf(fields.senderIp),
    macOf(fields.targetMac),
    bytesOf(fields.targetIp),
  );

/** Types of neighbour discovery (RFC 4861). */
export const ND = {
  routerSolicitation: 133,
  routerAdvertisement: 134,
  neighbourSolicitation: 135,
  neighbourAdvertisement: 136,
  redirect: 137,
} as const;

const linkLayerOption = (type: 1 | 2, mac: string) => join([type, 1], macOf(mac));

export function neighbourAdvertisement(ends: Ends, target: string, mac: string): Uint8Array {
  // Solicited and override.
  const body = join([0x60, 0, 0, 0], bytesOf(target), linkLayerOption(2, mac));
  return ip(ends, PROTOCOL.icmpv6, icmpv6(ends, ND.neighbourAdvertisement, body), { hopLimit: 255 });
}

export function neighbourSolicitation(ends: Ends, target: string, mac: string): Uint8Array {
  const body = join([0, 0, 0, 0], bytesOf(target), linkLayerOption(1, mac));
  return ip(ends, PROTOCOL.icmpv6, icmpv6(ends, ND.neighbourSolicitation, body), { hopLimit: 255 });
}

export function routerAdvertisement(ends: Ends, mac: string): Uint8Array {
  const body = join([64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0], linkLayerOption(1, mac));
  return ip(ends, PROTOCOL.icmpv6, icmpv6(ends, ND.routerAdvertisement, body), { hopLimit: 255 });
}

export function redirect(ends: Ends, target: string, destination: string): Uint8Array {
  const body = join([0, 0, 0, 0], bytesOf(target), bytesOf(destination));
  return ip(ends, PROTOCOL.icmpv6, icmpv6(ends, ND.redirect, body), { hopLimit: 255 });
}

/** A frame in VXLAN (RFC 7348), as the payload of a datagram. */
export const vxlan = (id: number, frame: Uint8Array): Uint8Array =>
  join([8, 0, 0, 0], [(id >> 16) & 0xff, (id >> 8) & 0xff, id & 0xff, 0], frame);
