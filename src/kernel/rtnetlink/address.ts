import { addressBytes, formatAddress } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes, readU32 } from '../netlink/attributes.ts';
import {
  type NetlinkMessage,
  type NetlinkSocket,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REPLACE,
} from '../netlink/socket.ts';

// linux/rtnetlink.h, linux/if_addr.h
const RTM_NEWADDR = 20;
const RTM_DELADDR = 21;
const RTM_GETADDR = 22;
const AF_INET = 2;
const AF_INET6 = 10;
const IFA = { ADDRESS: 1, LOCAL: 2, FLAGS: 8 } as const;
const IFA_F_NODAD = 0x02;

/** An address of a network device. */
export interface LinkAddress {
  readonly index: number;
  readonly address: string;
  readonly prefix: number;
}

/**
 * Gives a device an address; nothing happens when it has it already. IPv6 addresses skip duplicate detection
 * (RFC 4862), which would keep them unusable for a second: here the allocator guarantees that they are unique.
 */
export function addAddress(socket: NetlinkSocket, address: LinkAddress): void {
  request(socket, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, address);
}

/** Takes an address off a device; false when it was not there. */
export function deleteAddress(socket: NetlinkSocket, address: LinkAddress): boolean {
  try {
    request(socket, RTM_DELADDR, 0, address);
    return true;
  } catch (error) {
    if (hasCode(error, 'EADDRNOTAVAIL', 'ENODEV')) return false;
    throw error;
  }
}

/** Every address of the namespace, of both families. */
export function listAddresses(socket: NetlinkSocket): LinkAddress[] {
  const writer = new MessageWriter(8);
  writer.u32(0).u32(0);
  return socket
    .dump(RTM_GETADDR, writer.bytes(), 'addresses')
    .flatMap((message) => readAddress(message) ?? []);
}

/** Reads RTM_NEWADDR and RTM_DELADDR, also from events; null for families other than IP. */
export function readAddress(message: NetlinkMessage): LinkAddress | null {
  const { payload } = message;
  if (payload[0] !== AF_INET && payload[0] !== AF_INET6) return null;
  const attributes = readAttributes(payload.subarray(8));
  // On point-to-point devices ADDRESS is the peer's; LOCAL is absent for IPv6.
  const bytes = attributes.get(IFA.LOCAL) ?? attributes.get(IFA.ADDRESS);
  if (!bytes) return null;
  return { index: readU32(payload, 4), address: formatAddress(bytes), prefix: payload[1] ?? 0 };
}

function request(socket: NetlinkSocket, type: number, flags: number, address: LinkAddress): void {
  const bytes = addressBytes(address.address);
  if (!bytes)
    throw new FairleadError(`${address.address} is no address`, { op: 'write address', code: 'EINVAL' });
  const v6 = bytes.length === 16;
  const writer = new MessageWriter(64);
  writer
    .u8(v6 ? AF_INET6 : AF_INET)
    .u8(address.prefix)
    .u8(v6 ? IFA_F_NODAD : 0)
    .u8(0)
    .u32(address.index);
  writer.attribute(IFA.LOCAL, bytes);
  writer.attribute(IFA.ADDRESS, bytes);
  socket.request(type, flags & ~NLM_F_EXCL, writer.bytes(), `address ${address.address}/${address.prefix}`);
}
