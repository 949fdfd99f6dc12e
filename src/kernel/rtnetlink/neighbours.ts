import { addressBytes, formatAddress, type IPFamily } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes, readBe16, readU16, readU32 } from '../netlink/attributes.ts';
import {
  type NetlinkMessage,
  type NetlinkSocket,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_REPLACE,
} from '../netlink/socket.ts';
import {
  AF_BRIDGE,
  AF_INET,
  AF_INET6,
  NDA_DST,
  NDA_LLADDR,
  NDA_MASTER,
  NDA_PORT,
  NDA_VLAN,
  NDA_VNI,
  NTF_MASTER,
  NTF_SELF,
  NUD_NOARP,
  NUD_PERMANENT,
  RTM_DELNEIGH,
  RTM_GETNEIGH,
  RTM_NEWNEIGH,
} from './constants.ts';
import { formatMac, macBytes } from './links.ts';

/** An entry of the ARP or ND table. */
export interface Neighbour {
  readonly device: number;
  readonly address: string;
  /** Null: not resolved. */
  readonly mac: string | null;
  /** Never resolved, never expires. */
  readonly permanent: boolean;
  /** NUD_* bits of linux/neighbour.h. */
  readonly state: number;
}

/** Writes a permanent entry into the ARP or ND table, replacing an existing one. */
export function replaceNeighbour(
  socket: NetlinkSocket,
  entry: { readonly device: number; readonly address: string; readonly mac: string },
): void {
  const bytes = checkedBytes(entry.address);
  const writer = header(familyNumber(bytes), entry.device, NUD_PERMANENT, 0);
  writer.attribute(NDA_DST, bytes).attribute(NDA_LLADDR, macBytes(entry.mac));
  const object = `neighbour ${entry.address} at ${entry.mac}`;
  socket.request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, writer.bytes(), object);
}

/** Removes an entry of the ARP or ND table. Returns false if it does not exist. */
export function deleteNeighbour(
  socket: NetlinkSocket,
  entry: { readonly device: number; readonly address: string },
): boolean {
  const bytes = checkedBytes(entry.address);
  const writer = header(familyNumber(bytes), entry.device, 0, 0).attribute(NDA_DST, bytes);
  return remove(socket, writer.bytes(), `neighbour ${entry.address}`);
}

/** Returns the entries of the ARP and ND tables of one device or of all. */
export function listNeighbours(
  socket: NetlinkSocket,
  filter: { readonly device?: number; readonly family?: IPFamily } = {},
): Neighbour[] {
  const families =
    filter.family === undefined ? [AF_INET, AF_INET6] : [filter.family === 'ipv4' ? AF_INET : AF_INET6];
  return families.flatMap((family) =>
    socket
      .dump(RTM_GETNEIGH, header(family, 0, 0, 0).bytes(), 'neighbours')
      .map(readNeighbour)
      .filter((entry) => filter.device === undefined || entry.device === filter.device),
  );
}

/** Reads an RTM_NEWNEIGH or RTM_DELNEIGH message of family IPv4 or IPv6 (struct ndmsg and attributes). */
export function readNeighbour(message: NetlinkMessage): Neighbour {
  const { payload } = message;
  const attributes = readAttributes(payload.subarray(12));
  const address = attributes.get(NDA_DST);
  const mac = attributes.get(NDA_LLADDR);
  const state = readU16(payload, 8);
  return {
    device: readU32(payload, 4),
    address: address ? formatAddress(address) : '',
    mac: mac?.length === 6 ? formatMac(mac) : null,
    permanent: (state & NUD_PERMANENT) !== 0,
    state,
  };
}

/** An entry of the forwarding database of a bridge or a VXLAN device. */
export interface ForwardingEntry {
  readonly device: number;
  readonly mac: string;
  /** VXLAN: the address of the tunnel endpoint that has the MAC behind it. */
  readonly remote: string | null;
  readonly permanent: boolean;
  /** The bridge that contains the entry; null: the device itself. */
  readonly master: number | null;
  readonly vlan: number | null;
  readonly port: number | null;
  readonly vni: number | null;
}

/**
 * Writes a permanent entry. For a VXLAN device, frames to `mac` go to the tunnel endpoint `remote`; for a
 * bridge's port (without `remote`), `mac` is behind the port. The all-zero MAC of a VXLAN device is the
 * list of endpoints for frames to unknown addresses; several entries of it coexist.
 */
export function replaceForwardingEntry(
  socket: NetlinkSocket,
  entry: { readonly device: number; readonly mac: string; readonly remote?: string },
): void {
  const writer = forwardingEntry(entry, entry.remote === undefined ? NUD_NOARP : NUD_PERMANENT | NUD_NOARP);
  const flags = entry.mac === ALL_ZERO ? NLM_F_APPEND : NLM_F_REPLACE;
  const object = `fdb entry ${entry.mac}${entry.remote === undefined ? '' : ` dst ${entry.remote}`}`;
  socket.request(RTM_NEWNEIGH, NLM_F_CREATE | flags, writer.bytes(), object);
}

const ALL_ZERO = '00:00:00:00:00:00';

/**
 * Removes an entry of a VXLAN device, or (without `remote`) of a bridge's port. Returns false if it does
 * not exist.
 */
export function deleteForwardingEntry(
  socket: NetlinkSocket,
  entry: { readonly device: number; readonly mac: string; readonly remote?: string },
): boolean {
  return remove(socket, forwardingEntry(entry, 0).bytes(), `fdb entry ${entry.mac}`);
}

/** Returns the forwarding database of a VXLAN device or bridge port, by the device's index. */
export function listForwardingEntries(socket: NetlinkSocket, device: number): ForwardingEntry[] {
  // With struct ndmsg and an index in the request, the kernel dumps only that device (strict checking).
  return socket
    .dump(RTM_GETNEIGH, header(AF_BRIDGE, device, 0, 0).bytes(), 'forwarding database')
    .map(readForwardingEntry)
    .filter((entry) => entry.device === device);
}

/** Reads an RTM_NEWNEIGH or RTM_DELNEIGH message of family AF_BRIDGE. */
export function readForwardingEntry(message: NetlinkMessage): ForwardingEntry {
  const { payload } = message;
  const attributes = readAttributes(payload.subarray(12));
  const mac = attributes.get(NDA_LLADDR);
  const remote = attributes.get(NDA_DST);
  const master = attributes.get(NDA_MASTER);
  const vlan = attributes.get(NDA_VLAN);
  const port = attributes.get(NDA_PORT);
  const vni = attributes.get(NDA_VNI);
  return {
    device: readU32(payload, 4),
    mac: mac ? formatMac(mac) : '',
    remote: remote ? formatAddress(remote) : null,
    permanent: (readU16(payload, 8) & NUD_PERMANENT) !== 0,
    master: master ? readU32(master) : null,
    vlan: vlan ? readU16(vlan) : null,
    port: port ? readBe16(port) : null,
    vni: vni ? readU32(vni) : null,
  };
}

function forwardingEntry(
  entry: { readonly device: number; readonly mac: string; readonly remote?: string },
  state: number,
): MessageWriter {
  const writer = header(AF_BRIDGE, entry.device, state, entry.remote === undefined ? NTF_MASTER : NTF_SELF);
  writer.attribute(NDA_LLADDR, macBytes(entry.mac));
  if (entry.remote !== undefined) writer.attribute(NDA_DST, checkedBytes(entry.remote));
  return writer;
}

function remove(socket: NetlinkSocket, payload: Uint8Array, object: string): boolean {
  try {
    socket.request(RTM_DELNEIGH, 0, payload, `delete ${object}`);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENODEV')) return false;
    throw error;
  }
}

function header(family: number, device: number, state: number, flags: number): MessageWriter {
  return new MessageWriter(64).u8(family).u8(0).u16(0).u32(device).u16(state).u8(flags).u8(0);
}

function familyNumber(bytes: Uint8Array): number {
  return bytes.length === 4 ? AF_INET : AF_INET6;
}

function checkedBytes(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (bytes) return bytes;
  throw new FairleadError(`${JSON.stringify(address)} is not an IP address`, {
    op: 'neighbour',
    code: 'EINVAL',
  });
}
