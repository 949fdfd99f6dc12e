import { addressBytes, FAMILY_NAMES, formatAddress, hostPort, type IPFamily } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import {
  type Attributes,
  type MessageWriter,
  readAttributes,
  readBe16,
  readText,
  readU16,
  readU32,
} from '../netlink/attributes.ts';
import {
  AF_INET,
  AF_INET6,
  FORWARDING,
  IPVS_CMD_ATTR,
  IPVS_DEST_ATTR,
  IPVS_SVC_ATTR,
  SERVER_FLAG,
} from './constants.ts';

/** Identifies a virtual server: by address, protocol and port, or by the mark of packets. */
export type ServerMatch =
  | { readonly protocol: number; readonly address: string; readonly port: number }
  | { readonly mark: number };

export type ServerId = ServerMatch & { readonly family: IPFamily };

export interface VirtualServer {
  readonly id: ServerId;
  /** "rr", "wlc", … */
  readonly scheduler: string;
  /** Bits of `SERVER_FLAG.scheduler1` to `scheduler3`; the kernel sets the others. */
  readonly schedulerFlags: number;
  /** How long a client returns to the same real server; null: no persistence. */
  readonly persistenceSeconds: number | null;
}

export interface RealServer {
  readonly address: string;
  readonly port: number;
  /** 0: accepts no new connections. */
  readonly weight: number;
}

/** A real server as the kernel shows it. */
export interface ShownRealServer extends RealServer {
  /** One of `FORWARDING`. */
  readonly forwarding: number;
  /** Established connections (TCP and SCTP). */
  readonly activeConnections: number;
  /** Connections being opened or closed, and all of UDP. */
  readonly inactiveConnections: number;
  readonly persistentConnections: number;
}

/** Seconds after which idle connections expire (`ipvsadm --set`). */
export interface IpvsTimeouts {
  readonly tcp: number;
  readonly tcpFin: number;
  readonly udp: number;
}

/** Without the bits that describe the value's encoding (linux/netlink.h). */
const ATTRIBUTE_TYPE_MASK = 0x3fff;

const PROTOCOL_NAME: Readonly<Record<number, string>> = { 6: 'TCP', 17: 'UDP', 132: 'SCTP' };

/** Returns a server's name in the notation of `ipvsadm -Ln`: "TCP 10.96.0.1:443", "FWM 4194305 IPv6". */
export function describeServer(id: ServerId): string {
  if ('mark' in id) return `FWM ${id.mark}${id.family === 'ipv6' ? ' IPv6' : ''}`;
  return `${PROTOCOL_NAME[id.protocol] ?? id.protocol} ${hostPort({ ip: id.address, port: id.port })}`;
}

/** Writes the identity of a server; with `server`, all attributes. */
export function writeServer(writer: MessageWriter, id: ServerId, server?: VirtualServer): void {
  writer.nested(IPVS_CMD_ATTR.service, () => {
    writer.attributeU16(IPVS_SVC_ATTR.family, id.family === 'ipv4' ? AF_INET : AF_INET6);
    if ('mark' in id) writer.attributeU32(IPVS_SVC_ATTR.mark, id.mark);
    else {
      writer.attributeU16(IPVS_SVC_ATTR.protocol, id.protocol);
      writer.attribute(IPVS_SVC_ATTR.address, unionAddress(id.address, id.family));
      writer.attributeBe16(IPVS_SVC_ATTR.port, id.port);
    }
    if (!server) return;
    const { scheduler, schedulerFlags, persistenceSeconds } = server;
    const flags = schedulerFlags | (persistenceSeconds === null ? 0 : SERVER_FLAG.persistent);
    writer.attributeText(IPVS_SVC_ATTR.scheduler, scheduler);
    // struct ip_vs_flags: the flags, and a mask of those that this request sets.
    writer.attribute(IPVS_SVC_ATTR.flags, words(flags, 0xffffffff));
    writer.attributeU32(IPVS_SVC_ATTR.timeout, persistenceSeconds ?? 0);
    // A full netmask, so that each client is separate; for IPv6 it is a prefix length.
    if (id.family === 'ipv4') writer.attributeBe32(IPVS_SVC_ATTR.netmask, 0xffffffff);
    else writer.attributeU32(IPVS_SVC_ATTR.netmask, 128);
  });
}

/** Offsets of the values that `writeRealServer` writes; the weight is present only with `whole`. */
export const REAL_SERVER_AT = { address: 8, port: 28, weight: 52 } as const;

/** Writes a real server; `whole`: with its attributes, not only its identity. */
export function writeRealServer(
  writer: MessageWriter,
  family: IPFamily,
  real: RealServer,
  whole: boolean,
): void {
  writer.nested(IPVS_CMD_ATTR.destination, () => {
    writer.attribute(IPVS_DEST_ATTR.address, unionAddress(real.address, family));
    writer.attributeBe16(IPVS_DEST_ATTR.port, real.port);
    writer.attributeU16(IPVS_DEST_ATTR.family, family === 'ipv4' ? AF_INET : AF_INET6);
    if (!whole) return;
    writer.attributeU32(IPVS_DEST_ATTR.forwarding, FORWARDING.masquerade);
    writer.attributeU32(IPVS_DEST_ATTR.weight, real.weight);
    writer.attributeU32(IPVS_DEST_ATTR.upperThreshold, 0);
    writer.attributeU32(IPVS_DEST_ATTR.lowerThreshold, 0);
  });
}

/**
 * Reads one message of a dump of virtual servers (after its generic header); returns null for other
 * messages.
 */
export function readServer(payload: Uint8Array): VirtualServer | null {
  const nest = readAttributes(payload).get(IPVS_CMD_ATTR.service);
  if (!nest) return null;
  const attributes = readAttributes(nest);
  const family = readFamily(attributes.get(IPVS_SVC_ATTR.family));
  if (!family) return null;
  const mark = number(attributes, IPVS_SVC_ATTR.mark);
  const address = attributes.get(IPVS_SVC_ATTR.address);
  const port = attributes.get(IPVS_SVC_ATTR.port);
  const protocol = attributes.get(IPVS_SVC_ATTR.protocol);
  const flags = number(attributes, IPVS_SVC_ATTR.flags);
  const scheduler = attributes.get(IPVS_SVC_ATTR.scheduler);
  const id: ServerId | null = mark
    ? { family, mark }
    : address && port && protocol
      ? {
          family,
          protocol: readU16(protocol),
          address: readUnionAddress(address, family),
          port: readBe16(port),
        }
      : null;
  if (!id) return null;
  return {
    id,
    scheduler: scheduler ? readText(scheduler) : '',
    schedulerFlags: flags & (SERVER_FLAG.scheduler1 | SERVER_FLAG.scheduler2 | SERVER_FLAG.scheduler3),
    persistenceSeconds: flags & SERVER_FLAG.persistent ? number(attributes, IPVS_SVC_ATTR.timeout) : null,
  };
}

/**
 * Reads one message of a dump of real servers; returns null for other messages. Optimised: the general
 * attribute reader makes an object for each of a real server's fifteen attributes.
 */
export function readRealServer(payload: Uint8Array, family: IPFamily): ShownRealServer | null {
  let at = 0;
  while (at + 4 <= payload.length && typeAt(payload, at) !== IPVS_CMD_ATTR.destination) {
    at += alignedLengthAt(payload, at);
  }
  if (at + 4 > payload.length) return null;
  const end = Math.min(payload.length, at + readU16(payload, at));
  const real = {
    address: '',
    port: 0,
    weight: 0,
    forwarding: 0,
    activeConnections: 0,
    inactiveConnections: 0,
    persistentConnections: 0,
  };
  let shownFamily: number = family === 'ipv4' ? AF_INET : AF_INET6;
  let addressAt = -1;
  for (at += 4; at + 4 <= end; at += alignedLengthAt(payload, at)) {
    const value = at + 4;
    switch (typeAt(payload, at)) {
      case IPVS_DEST_ATTR.address:
        addressAt = value;
        break;
      case IPVS_DEST_ATTR.port:
        real.port = readBe16(payload, value);
        break;
      case IPVS_DEST_ATTR.family:
        shownFamily = readU16(payload, value);
        break;
      case IPVS_DEST_ATTR.weight:
        real.weight = readU32(payload, value);
        break;
      case IPVS_DEST_ATTR.forwarding:
        real.forwarding = readU32(payload, value);
        break;
      case IPVS_DEST_ATTR.activeConnections:
        real.activeConnections = readU32(payload, value);
        break;
      case IPVS_DEST_ATTR.inactiveConnections:
        real.inactiveConnections = readU32(payload, value);
        break;
      case IPVS_DEST_ATTR.persistentConnections:
        real.persistentConnections = readU32(payload, value);
        break;
    }
  }
  if (addressAt < 0) return null;
  const bytes = payload.subarray(addressAt, addressAt + 16);
  real.address = readUnionAddress(bytes, shownFamily === AF_INET6 ? 'ipv6' : 'ipv4');
  return real;
}

const typeAt = (bytes: Uint8Array, at: number): number => readU16(bytes, at + 2) & ATTRIBUTE_TYPE_MASK;
/** A malformed attribute ends the list. */
const alignedLengthAt = (bytes: Uint8Array, at: number): number => {
  const length = readU16(bytes, at);
  return length < 4 ? bytes.length : (length + 3) & ~3;
};

export function readTimeouts(payload: Uint8Array): IpvsTimeouts {
  const attributes = readAttributes(payload);
  return {
    tcp: number(attributes, IPVS_CMD_ATTR.timeoutTcp),
    tcpFin: number(attributes, IPVS_CMD_ATTR.timeoutTcpFin),
    udp: number(attributes, IPVS_CMD_ATTR.timeoutUdp),
  };
}

function readFamily(bytes: Uint8Array | undefined): IPFamily | null {
  switch (bytes && readU16(bytes)) {
    case AF_INET:
      return 'ipv4';
    case AF_INET6:
      return 'ipv6';
    default:
      return null;
  }
}

/** union nf_inet_addr: 16 bytes, of which IPv4 uses the first four. */
function unionAddress(text: string, family: IPFamily): Uint8Array {
  const union = new Uint8Array(16);
  union.set(checkedAddress(text, family));
  return union;
}

/**
 * Returns the bytes of an address. Throws FairleadError (EINVAL) if the text is not an address of this
 * family.
 */
export function checkedAddress(text: string, family: IPFamily): Uint8Array {
  const bytes = addressBytes(text);
  if (bytes?.length !== (family === 'ipv4' ? 4 : 16)) {
    throw new FairleadError(`${JSON.stringify(text)} is not an ${FAMILY_NAMES[family]} address`, {
      op: 'encode IPVS server',
      code: 'EINVAL',
      object: text,
    });
  }
  return bytes;
}

const readUnionAddress = (bytes: Uint8Array, family: IPFamily): string =>
  formatAddress(bytes.subarray(0, family === 'ipv4' ? 4 : 16));

function words(...values: number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(values).buffer);
}

function number(attributes: Attributes, type: number): number {
  const value = attributes.get(type);
  return value && value.length >= 4 ? readU32(value) : 0;
}
