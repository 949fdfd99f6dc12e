import { formatAddress } from '../lib/address.ts';

/** TCP flags (RFC 9293, section 3.1). */
export const TCP_FLAG = { fin: 1, syn: 2, rst: 4, psh: 8, ack: 16 } as const;
/** IP protocol numbers. */
export const IP_PROTOCOL = { icmp: 1, tcp: 6, udp: 17, icmp6: 58 } as const;

/** UDP port of VXLAN (RFC 7348), which nodes of local clusters use. */
export const TUNNEL_PORT = 4789;

const ETHERNET_BYTES = 14;
const ETHERTYPE_IPV4 = 0x0800;
const ETHERTYPE_IPV6 = 0x86dd;
const VXLAN_HEADER_BYTES = 8;

export interface TcpFields {
  readonly sequence: number;
  readonly acknowledgment: number;
  /** The sum of TCP_FLAGs. */
  readonly flags: number;
  /** When it was sent, by the sender's clock (RFC 7323): another value when it is sent again; null: not known. */
  readonly timestamp: number | null;
  /** Of a SYN: the most bytes of data in a segment that its sender accepts (MSS); null: not said. */
  readonly maxSegment?: number | null;
}

/** An ICMP error and the packet that it answers. */
export interface IcmpError {
  readonly type: number;
  readonly code: number;
  /** "port unreachable", "prohibited by a filter", … */
  readonly text: string;
  readonly meaning: 'refused' | 'unreachable' | 'other';
  /** The first bytes of the packet that it answers; null: unreadable. */
  readonly about: Packet | null;
}

/** The fields of an IP packet that a trace compares. */
export interface Packet {
  readonly source: string;
  readonly destination: string;
  readonly protocol: number;
  /** TTL, or the hop limit of IPv6: each router that forwards the packet lowers it by one. */
  readonly hopLimit: number;
  /** Null: the protocol has no ports. */
  readonly ports: { readonly source: number; readonly destination: number } | null;
  readonly tcp: TcpFields | null;
  readonly icmp: IcmpError | null;
  /** The payload after the UDP or TCP header. */
  readonly payload: Uint8Array;
  /** The addresses of the outer packet, if this one was inside VXLAN. */
  readonly tunnel: { readonly source: string; readonly destination: string } | null;
}

/**
 * Reads an Ethernet frame with IPv4 or IPv6; of VXLAN on `tunnelPort` the inner packet. Null: another protocol, a fragment
 * without ports, or malformed.
 */
export function readFrame(frame: Uint8Array, tunnelPort: number | null): Packet | null {
  if (frame.length < ETHERNET_BYTES) return null;
  const type = viewOf(frame).getUint16(12);
  if (type !== ETHERTYPE_IPV4 && type !== ETHERTYPE_IPV6) return null;
  const packet = readPacket(frame.subarray(ETHERNET_BYTES));
  if (packet?.protocol !== IP_PROTOCOL.udp || tunnelPort === null) return packet;
  if (packet.ports?.destination !== tunnelPort || packet.payload.length < VXLAN_HEADER_BYTES) return packet;
  const inner = readFrame(packet.payload.subarray(VXLAN_HEADER_BYTES), null);
  const { source, destination } = packet;
  return inner ? { ...inner, tunnel: { source, destination } } : packet;
}

/** Reads an IP packet that may be cut. */
export function readPacket(bytes: Uint8Array): Packet | null {
  const version = (bytes[0] ?? 0) >> 4;
  if (version === 4) return readIpv4(bytes);
  return version === 6 ? readIpv6(bytes) : null;
}

function readIpv4(bytes: Uint8Array): Packet | null {
  const headerBytes = ((bytes[0] ?? 0) & 0xf) * 4;
  if (bytes.length < 20 || headerBytes < 20 || bytes.length < headerBytes) return null;
  const view = viewOf(bytes);
  // A later fragment has no ports.
  if ((view.getUint16(6) & 0x1fff) !== 0) return null;
  const end = Math.min(bytes.length, view.getUint16(2) || bytes.length);
  return readTransport(bytes[9] ?? 0, bytes.subarray(headerBytes, end), {
    source: formatAddress(bytes.subarray(12, 16)),
    destination: formatAddress(bytes.subarray(16, 20)),
    hopLimit: bytes[8] ?? 0,
  });
}

function readIpv6(bytes: Uint8Array): Packet | null {
  if (bytes.length < 40) return null;
  const view = viewOf(bytes);
  const end = Math.min(bytes.length, 40 + (view.getUint16(4) || bytes.length));
  return readTransport(bytes[6] ?? 0, bytes.subarray(40, end), {
    source: formatAddress(bytes.subarray(8, 24)),
    destination: formatAddress(bytes.subarray(24, 40)),
    hopLimit: bytes[7] ?? 0,
  });
}

function readTransport(
  protocol: number,
  bytes: Uint8Array,
  head: Pick<Packet, 'source' | 'destination' | 'hopLimit'>,
): Packet | null {
  const base = { ...head, protocol, ports: null, tcp: null, icmp: null, tunnel: null };
  const view = viewOf(bytes);
  switch (protocol) {
    case IP_PROTOCOL.tcp: {
      // An ICMP error has as little as the first eight bytes of the header.
      if (bytes.length < 8) return null;
      const ports = { source: view.getUint16(0), destination: view.getUint16(2) };
      const sequence = view.getUint32(4);
      if (bytes.length < 20)
        return {
          ...base,
          ports,
          tcp: { sequence, acknowledgment: 0, flags: 0, timestamp: null },
          payload: NOTHING,
        };
      const headerBytes = ((bytes[12] ?? 0) >> 4) * 4;
      const options = bytes.subarray(20, headerBytes);
      const tcp = {
        sequence,
        acknowledgment: view.getUint32(8),
        flags: bytes[13] ?? 0,
        timestamp: readOption(options, OPTION.timestamps, 10, (value) => value.getUint32(2)),
        maxSegment: readOption(options, OPTION.maxSegment, 4, (value) => value.getUint16(2)),
      };
      return { ...base, ports, tcp, payload: bytes.subarray(headerBytes) };
    }
    case IP_PROTOCOL.udp: {
      if (bytes.length < 8) return null;
      const ports = { source: view.getUint16(0), destination: view.getUint16(2) };
      return { ...base, ports, payload: bytes.subarray(8) };
    }
    case IP_PROTOCOL.icmp:
    case IP_PROTOCOL.icmp6: {
      const type = bytes[0] ?? 0;
      const code = bytes[1] ?? 0;
      const known = protocol === IP_PROTOCOL.icmp ? ICMP_ERRORS : ICMP6_ERRORS;
      const isError = bytes.length > 8 && (protocol === IP_PROTOCOL.icmp ? type in ICMP_ERRORS : type < 128);
      if (!isError) return { ...base, payload: bytes };
      const [text, meaning] = known[type]?.[code] ?? [`ICMP type ${type} code ${code}`, 'other'];
      const about = readPacket(bytes.subarray(8));
      return { ...base, icmp: { type, code, text, meaning, about }, payload: NOTHING };
    }
    default:
      return { ...base, payload: bytes };
  }
}

/** TCP options (RFC 9293, RFC 7323). */
const OPTION = { end: 0, noOperation: 1, maxSegment: 2, timestamps: 8 } as const;

/** Reads an option of a TCP header. `read`: is given the option with its kind and length. Null: it has none of this length. */
function readOption(
  options: Uint8Array,
  wanted: number,
  wantedLength: number,
  read: (option: DataView) => number,
): number | null {
  for (let at = 0; at < options.length; ) {
    const kind = options[at];
    if (kind === OPTION.end) return null;
    const length = kind === OPTION.noOperation ? 1 : (options[at + 1] ?? 0);
    if (kind === wanted && length === wantedLength && at + length <= options.length)
      return read(viewOf(options.subarray(at, at + length)));
    if (length === 0) return null;
    at += length;
  }
  return null;
}

type ErrorTexts = Readonly<
  Record<number, Readonly<Record<number, readonly [text: string, meaning: IcmpError['meaning']]>>>
>;

/** RFC 792, RFC 1812: type → code. */
const ICMP_ERRORS: ErrorTexts = {
  3: {
    0: ['network unreachable', 'unreachable'],
    1: ['host unreachable', 'unreachable'],
    2: ['protocol unreachable', 'refused'],
    3: ['port unreachable', 'refused'],
    4: ['packet too large', 'other'],
    9: ['network prohibited by a filter', 'refused'],
    10: ['host prohibited by a filter', 'refused'],
    13: ['prohibited by a filter', 'refused'],
  },
  11: { 0: ['time to live exceeded', 'other'] },
};
/** RFC 4443. */
const ICMP6_ERRORS: ErrorTexts = {
  1: {
    0: ['no route', 'unreachable'],
    1: ['prohibited by a filter', 'refused'],
    3: ['address unreachable', 'unreachable'],
    4: ['port unreachable', 'refused'],
    6: ['route rejected', 'unreachable'],
  },
  2: { 0: ['packet too large', 'other'] },
  3: { 0: ['hop limit exceeded', 'other'] },
};

const NOTHING = new Uint8Array(0);
const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
