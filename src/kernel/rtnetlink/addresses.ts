import { addressBytes, formatAddress, type IPFamily } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes, readU32 } from '../netlink/attributes.ts';
import {
  type NetlinkMessage,
  type NetlinkSocket,
  NLM_F_ACK,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  NLM_F_REQUEST,
  refusalError,
} from '../netlink/socket.ts';
import {
  AF_INET,
  AF_INET6,
  AF_UNSPEC,
  IFA_ADDRESS,
  IFA_BROADCAST,
  IFA_CACHEINFO,
  IFA_F_NODAD,
  IFA_F_NOPREFIXROUTE,
  IFA_F_PERMANENT,
  IFA_F_TENTATIVE,
  IFA_FLAGS,
  IFA_LOCAL,
  IFA_RT_PRIORITY,
  RTM_DELADDR,
  RTM_GETADDR,
  RTM_NEWADDR,
} from './constants.ts';

const EEXIST = 17;

/** An address of a device. */
export interface InterfaceAddress {
  /** The device's index. */
  readonly device: number;
  readonly address: string;
  readonly prefix: number;
  /** 0 global, 253 link, 254 host (enum rt_scope_t). */
  readonly scope: number;
  readonly permanent: boolean;
  /** IPv6: duplicate address detection has not finished, and the address cannot be used yet. */
  readonly tentative: boolean;
  /** IPv4: metric of the route to the network of the address; 0: the kernel's default. */
  readonly metric: number;
}

export interface NewAddress {
  readonly device: number;
  readonly address: string;
  readonly prefix: number;
  /** Add a route to the network of the address; default true. */
  readonly prefixRoute?: boolean;
  /** IPv4: metric of that route; default 0. The kernel replaces the route if the address exists (Linux 4.18). */
  readonly metric?: number;
  readonly scope?: number;
  /** IPv6: never chosen as the source of packets to other destinations (RFC 6724, rule 3). */
  readonly deprecated?: boolean;
}

/**
 * Adds an address to a device; an existing one is not an error. IPv6 addresses are usable at once, without
 * duplicate address detection: the caller assigns unique addresses.
 */
export function addAddress(socket: NetlinkSocket, address: NewAddress): void {
  const writer = new MessageWriter(128);
  writeNewAddress(writer, address);
  try {
    socket.request(RTM_NEWADDR, flagsOf(address), writer.bytes(), describe(address));
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
}

/**
 * Adds many addresses in one message to the kernel, which processes them one after another; otherwise like
 * `addAddress`.
 */
export async function addAddresses(socket: NetlinkSocket, addresses: readonly NewAddress[]): Promise<void> {
  const writer = new MessageWriter(Math.max(128, addresses.length * 80));
  const first = socket.nextSequence();
  let sequence = first;
  for (const [i, address] of addresses.entries()) {
    if (i > 0) sequence = socket.nextSequence();
    const acknowledged = i === addresses.length - 1 ? NLM_F_ACK : 0;
    const start = writer.beginMessage(RTM_NEWADDR, NLM_F_REQUEST | acknowledged | flagsOf(address), sequence);
    writeNewAddress(writer, address);
    writer.endMessage(start);
  }
  if (addresses.length === 0) return;
  for (const refusal of await socket.batch(writer.bytes(), sequence)) {
    const address = addresses[refusal.sequence - first];
    if (refusal.errno !== EEXIST)
      throw refusalError(refusal, 'netlink request', address && describe(address));
  }
}

const describe = ({ address, prefix }: NewAddress) => `add address ${address}/${prefix}`;

/**
 * The kernel replaces an IPv4 address only if its prefix is the same too; another prefix makes another
 * address.
 */
const flagsOf = ({ address }: NewAddress) =>
  NLM_F_CREATE | (address.includes(':') ? NLM_F_EXCL : NLM_F_REPLACE);

/** Writes struct ifaddrmsg and its attributes. */
function writeNewAddress(writer: MessageWriter, address: NewAddress): void {
  const bytes = checkedBytes(address.address);
  header(bytes, address.prefix, address.device, address.scope ?? 0, writer);
  writer.attribute(IFA_LOCAL, bytes).attribute(IFA_ADDRESS, bytes);
  if (bytes.length === 4 && address.prefix < 31)
    writer.attribute(IFA_BROADCAST, broadcast(bytes, address.prefix));
  const flags =
    (bytes.length === 16 ? IFA_F_NODAD : 0) | (address.prefixRoute === false ? IFA_F_NOPREFIXROUTE : 0);
  writer.attributeU32(IFA_FLAGS, flags);
  if (address.metric && bytes.length === 4) writer.attributeU32(IFA_RT_PRIORITY, address.metric);
  // struct ifa_cacheinfo: preferred lifetime zero, valid forever.
  if (address.deprecated && bytes.length === 16) {
    writer.attribute(IFA_CACHEINFO, Uint8Array.of(0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0));
  }
}

/** Removes an address from a device. Returns false if the device does not have it. */
export function deleteAddress(
  socket: NetlinkSocket,
  address: { readonly device: number; readonly address: string; readonly prefix: number },
): boolean {
  const bytes = checkedBytes(address.address);
  const writer = header(bytes, address.prefix, address.device, 0);
  writer.attribute(IFA_LOCAL, bytes).attribute(IFA_ADDRESS, bytes);
  try {
    socket.request(RTM_DELADDR, 0, writer.bytes(), `delete address ${address.address}/${address.prefix}`);
    return true;
  } catch (error) {
    if (hasCode(error, 'EADDRNOTAVAIL', 'ENODEV')) return false;
    throw error;
  }
}

/** Returns the addresses of one device or of all, of one family or of both. */
export function listAddresses(
  socket: NetlinkSocket,
  filter: { readonly device?: number; readonly family?: IPFamily } = {},
): InterfaceAddress[] {
  const family = filter.family === undefined ? AF_UNSPEC : filter.family === 'ipv4' ? AF_INET : AF_INET6;
  // Kernels filter a dump by device only under strict checking; filtering again costs nothing.
  const writer = new MessageWriter(16)
    .u8(family)
    .u8(0)
    .u8(0)
    .u8(0)
    .u32(filter.device ?? 0);
  return socket
    .dump(RTM_GETADDR, writer.bytes(), 'addresses')
    .map(readAddress)
    .filter((address) => filter.device === undefined || address.device === filter.device);
}

/** Reads an RTM_NEWADDR or RTM_DELADDR message (struct ifaddrmsg and attributes). */
export function readAddress(message: NetlinkMessage): InterfaceAddress {
  const { payload } = message;
  const attributes = readAttributes(payload.subarray(8));
  // IFA_ADDRESS is the peer's on point-to-point links; IPv6 leaves IFA_LOCAL out when there is no peer.
  const bytes = attributes.get(IFA_LOCAL) ?? attributes.get(IFA_ADDRESS);
  const flagBytes = attributes.get(IFA_FLAGS);
  const metric = attributes.get(IFA_RT_PRIORITY);
  const flags = flagBytes ? readU32(flagBytes) : (payload[2] ?? 0);
  return {
    device: readU32(payload, 4),
    address: bytes ? formatAddress(bytes) : '',
    prefix: payload[1] ?? 0,
    scope: payload[3] ?? 0,
    permanent: (flags & IFA_F_PERMANENT) !== 0,
    tentative: (flags & IFA_F_TENTATIVE) !== 0,
    metric: metric ? readU32(metric) : 0,
  };
}

function header(
  bytes: Uint8Array,
  prefix: number,
  device: number,
  scope: number,
  writer = new MessageWriter(128),
): MessageWriter {
  return writer
    .u8(bytes.length === 4 ? AF_INET : AF_INET6)
    .u8(prefix)
    .u8(0)
    .u8(scope)
    .u32(device);
}

function checkedBytes(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (bytes) return bytes;
  throw new FairleadError(`${JSON.stringify(address)} is not an IP address`, {
    op: 'add address',
    code: 'EINVAL',
  });
}

function broadcast(bytes: Uint8Array, prefix: number): Uint8Array {
  return Uint8Array.from(bytes, (byte, i) => byte | (0xff >> Math.min(8, Math.max(0, prefix - i * 8))));
}
