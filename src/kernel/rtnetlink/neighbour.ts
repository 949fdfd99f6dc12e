import { addressBytes, formatAddress } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes, readI32, readU16 } from '../netlink/attributes.ts';
import { type NetlinkMessage, type NetlinkSocket, NLM_F_CREATE, NLM_F_REPLACE } from '../netlink/socket.ts';
import { macBytes } from './link.ts';

// linux/rtnetlink.h, linux/neighbour.h
const RTM_NEWNEIGH = 28;
const RTM_DELNEIGH = 29;
const RTM_GETNEIGH = 30;
const AF_INET = 2;
const AF_INET6 = 10;
const AF_BRIDGE = 7;
const NDA_DST = 1;
const NDA_LLADDR = 2;
const NUD_PERMANENT = 0x80;
const NTF_SELF = 0x02;

/** A permanent neighbour entry: which hardware address an IP address has. */
export interface Neighbour {
  readonly index: number;
  readonly address: string;
  readonly hardware: string;
}

/** A VXLAN device's forwarding entry: behind which remote address a hardware address lives. */
export interface ForwardingEntry {
  readonly index: number;
  readonly hardware: string;
  readonly remote: string;
}

export function replaceNeighbour(socket: NetlinkSocket, entry: Neighbour): void {
  request(
    socket,
    RTM_NEWNEIGH,
    NLM_F_CREATE | NLM_F_REPLACE,
    entry.index,
    entry.address,
    entry.hardware,
    false,
  );
}

/** Removes an entry; false when there was none. */
export function deleteNeighbour(socket: NetlinkSocket, entry: Neighbour): boolean {
  return deleted(() => request(socket, RTM_DELNEIGH, 0, entry.index, entry.address, entry.hardware, false));
}

export function replaceForwarding(socket: NetlinkSocket, entry: ForwardingEntry): void {
  request(
    socket,
    RTM_NEWNEIGH,
    NLM_F_CREATE | NLM_F_REPLACE,
    entry.index,
    entry.remote,
    entry.hardware,
    true,
  );
}

export function deleteForwarding(socket: NetlinkSocket, entry: ForwardingEntry): boolean {
  return deleted(() => request(socket, RTM_DELNEIGH, 0, entry.index, entry.remote, entry.hardware, true));
}

/** The permanent neighbours of one device. */
export function listNeighbours(socket: NetlinkSocket, index: number): Neighbour[] {
  return [AF_INET, AF_INET6].flatMap((family) =>
    dump(socket, family).flatMap((message) => {
      const entry = readEntry(message);
      return entry && entry.index === index && entry.permanent
        ? [{ index, address: entry.address, hardware: entry.hardware }]
        : [];
    }),
  );
}

/** The forwarding entries of one VXLAN device. */
export function listForwarding(socket: NetlinkSocket, index: number): ForwardingEntry[] {
  return dump(socket, AF_BRIDGE).flatMap((message) => {
    const entry = readEntry(message);
    return entry && entry.index === index && entry.permanent
      ? [{ index, remote: entry.address, hardware: entry.hardware }]
      : [];
  });
}

function dump(socket: NetlinkSocket, family: number): NetlinkMessage[] {
  const writer = new MessageWriter(16);
  writer.u8(family).u8(0).u16(0).u32(0).u16(0).u16(0);
  return socket.dump(RTM_GETNEIGH, writer.bytes(), 'neighbours');
}

function readEntry(message: NetlinkMessage) {
  const { payload } = message;
  const attributes = readAttributes(payload.subarray(12));
  const address = attributes.get(NDA_DST);
  const hardware = attributes.get(NDA_LLADDR);
  if (!address || !hardware) return null;
  return {
    index: readI32(payload, 4),
    permanent: (readU16(payload, 8) & NUD_PERMANENT) !== 0,
    address: formatAddress(address),
    hardware: [...hardware].map((byte) => byte.toString(16).padStart(2, '0')).join(':'),
  };
}

function request(
  socket: NetlinkSocket,
  type: number,
  flags: number,
  index: number,
  address: string,
  hardware: string,
  forwarding: boolean,
): void {
  const bytes = addressBytes(address);
  if (!bytes) throw new FairleadError(`${address} is no address`, { op: 'write neighbour', code: 'EINVAL' });
  const writer = new MessageWriter(64);
  writer.u8(forwarding ? AF_BRIDGE : bytes.length === 4 ? AF_INET : AF_INET6);
  writer
    .u8(0)
    .u16(0)
    .u32(index)
    .u16(NUD_PERMANENT)
    .u8(forwarding ? NTF_SELF : 0)
    .u8(0);
  writer.attribute(NDA_DST, bytes);
  writer.attribute(NDA_LLADDR, macBytes(hardware));
  socket.request(type, flags, writer.bytes(), `${forwarding ? 'fdb' : 'neighbour'} ${hardware} ${address}`);
}

function deleted(run: () => void): boolean {
  try {
    run();
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENODEV')) return false;
    throw error;
  }
}
