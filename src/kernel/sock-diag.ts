import { endianness } from 'node:os';
import { formatAddress, type IPFamily } from '../lib/address.ts';
import { hasCode } from '../lib/errors.ts';
import { type Attributes, MessageWriter, readAttributes, readBe16 } from './netlink/attributes.ts';
import type { NetlinkMessage, NetlinkSocket } from './netlink/socket.ts';
import { AF_INET, AF_INET6 } from './socket-numbers.ts';

// linux/sock_diag.h, linux/inet_diag.h
const SOCK_DIAG_BY_FAMILY = 20;
const SOCK_DESTROY = 21;
/** Offset of struct inet_diag_sockid in an answer (struct inet_diag_msg), and its length. */
const ID_AT = 4;
const ID_LENGTH = 48;
/** Length of struct inet_diag_msg; attributes follow. */
const MESSAGE_LENGTH = 72;
/** Offsets of the two queues; of a listening socket, how many connections wait to be accepted, and how many may wait. */
const RQUEUE_AT = 56;
const WQUEUE_AT = 60;
const INET_DIAG_REQ_SK_BPF_STORAGES = 2;
const SK_DIAG_BPF_STORAGE_REQ_MAP_FD = 1;
const INET_DIAG_SK_BPF_STORAGES = 20;
const SK_DIAG_BPF_STORAGE = 1;
const SK_DIAG_BPF_STORAGE_MAP_VALUE = 3;
const INET_DIAG_SKV6ONLY = 11;

/** Protocols whose sockets can be listed. */
const SOCKET_PROTOCOL = { tcp: 6, udp: 17 } as const;

/** Bits of `states`: 1 << TCP_ESTABLISHED and so on (net/tcp_states.h). */
export const TCP_STATE = {
  established: 1 << 1,
  synSent: 1 << 2,
  synReceived: 1 << 3,
  finWait1: 1 << 4,
  closeWait: 1 << 8,
  listen: 1 << 10,
} as const;
const EVERY_STATE = 0xffffffff;

/** A socket of a namespace. */
export interface InetSocket {
  readonly family: IPFamily;
  readonly protocol: keyof typeof SOCKET_PROTOCOL;
  readonly local: string;
  readonly localPort: number;
  readonly remote: string;
  readonly remotePort: number;
  /** Number of net/tcp_states.h; 1 is established. */
  readonly state: number;
  /** An IPv6 socket that does not accept IPv4 (IPV6_V6ONLY); reported for sockets without a peer. */
  readonly v6Only: boolean;
  /** A listening socket with so many connections that wait to be accepted that it takes no others. */
  readonly isFull: boolean;
  /** Identifies the socket: struct inet_diag_sockid with its cookie. */
  readonly id: Uint8Array;
  /** The socket's value in the requested BPF map; null: none. */
  readonly storage: Uint8Array | null;
}

/**
 * Lists sockets of the namespace that `socket` (NETLINK_SOCK_DIAG) was opened in, by default in every
 * state. `storageMap`: the descriptor of a BPF_MAP_TYPE_SK_STORAGE map whose values are returned too
 * (kernel 5.7).
 */
export function listSockets(
  socket: NetlinkSocket,
  family: IPFamily,
  protocol: keyof typeof SOCKET_PROTOCOL,
  states: number = EVERY_STATE,
  storageMap: number | null = null,
): InetSocket[] {
  const writer = request(family, protocol, states, new Uint8Array(ID_LENGTH));
  if (storageMap !== null) {
    writer.nested(INET_DIAG_REQ_SK_BPF_STORAGES, () =>
      writer.attributeU32(SK_DIAG_BPF_STORAGE_REQ_MAP_FD, storageMap),
    );
  }
  const payload = writer.bytes();
  return socket
    .dump(SOCK_DIAG_BY_FAMILY, payload, `${protocol} sockets`)
    .map((message) => readSocket(message, protocol));
}

/**
 * Destroys a connection: its owner reads ECONNABORTED, and the peer gets a reset. Returns false if it no
 * longer exists. Throws EOPNOTSUPP on a kernel built without INET_DIAG_DESTROY.
 */
export function destroySocket(socket: NetlinkSocket, target: InetSocket): boolean {
  const payload = request(target.family, target.protocol, EVERY_STATE, target.id).bytes();
  const object = `${target.protocol} connection to ${target.remote} port ${target.remotePort}`;
  try {
    socket.request(SOCK_DESTROY, 0, payload, object);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}

/** struct inet_diag_req_v2 */
function request(
  family: IPFamily,
  protocol: keyof typeof SOCKET_PROTOCOL,
  states: number,
  id: Uint8Array,
): MessageWriter {
  return new MessageWriter(64)
    .u8(family === 'ipv4' ? AF_INET : AF_INET6)
    .u8(SOCKET_PROTOCOL[protocol])
    .u8(0)
    .u8(0)
    .u32(states)
    .raw(id);
}

function readSocket(message: NetlinkMessage, protocol: keyof typeof SOCKET_PROTOCOL): InetSocket {
  const { payload } = message;
  const v4 = payload[0] === AF_INET;
  const address = (at: number) => formatAddress(payload.subarray(at, at + (v4 ? 4 : 16)));
  const attributes = readAttributes(payload.subarray(MESSAGE_LENGTH));
  const numbers = new DataView(payload.buffer, payload.byteOffset);
  const u32 = (at: number) => numbers.getUint32(at, endianness() === 'LE');
  return {
    family: v4 ? 'ipv4' : 'ipv6',
    protocol,
    state: payload[1] ?? 0,
    localPort: readBe16(payload, ID_AT),
    remotePort: readBe16(payload, ID_AT + 2),
    local: address(ID_AT + 4),
    remote: address(ID_AT + 20),
    id: payload.slice(ID_AT, ID_AT + ID_LENGTH),
    // sk_acceptq_is_full in net/sock.h.
    isFull: 1 << (payload[1] ?? 0) === TCP_STATE.listen && u32(RQUEUE_AT) > u32(WQUEUE_AT),
    v6Only: attributes.get(INET_DIAG_SKV6ONLY)?.[0] === 1,
    storage: readStorage(attributes),
  };
}

function readStorage(attributes: Attributes): Uint8Array | null {
  const storages = attributes.get(INET_DIAG_SK_BPF_STORAGES);
  const storage = storages && readAttributes(storages).get(SK_DIAG_BPF_STORAGE);
  return (storage && readAttributes(storage).get(SK_DIAG_BPF_STORAGE_MAP_VALUE)?.slice()) ?? null;
}
