import { addressBytes } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { errnoError, libc, type Poll, systemError } from './libc.ts';
import { inNetns, type NetnsRef } from './netns.ts';
import { attachFilter, type FilterInstruction } from './socket-filter.ts';
import { AF_INET6, SOCK_CLOEXEC, SOCK_RAW } from './socket-numbers.ts';

export type { FilterInstruction } from './socket-filter.ts';

// linux/if_packet.h, linux/if_ether.h, linux/in6.h
const AF_PACKET = 17;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const IPPROTO_IPV6 = 41;
const IPV6_ADD_MEMBERSHIP = 20;
const IPV6_DROP_MEMBERSHIP = 21;
const MSG_DONTWAIT = 0x40;

/** EtherTypes (linux/if_ether.h). */
export const ETHERTYPE = { arp: 0x0806, ipv6: 0x86dd, all: 0x0003 } as const;

/** Maximum length of a frame; neighbour messages are shorter than a hundred bytes. */
const MAX_BYTES = 2048;
/** Number of frames read in one turn of the event loop, so that a flood does not block it. */
const MAX_PER_TURN = 256;

export interface PacketSocketOptions {
  /** Index of the device that the socket receives from and sends to. */
  readonly device: number;
  readonly ethertype: number;
  /**
   * Runs in the kernel on whole Ethernet frames; frames for which it returns 0 do not reach this process.
   */
  readonly filter?: readonly FilterInstruction[];
  /** Default: the namespace of this thread. */
  readonly netns?: NetnsRef | undefined;
  /** A whole Ethernet frame, free to keep. */
  readonly onFrame: (frame: Uint8Array) => void;
  /**
   * Reports that reading failed: ENETDOWN while the device is down (reading continues afterwards), ENODEV
   * and similar when it has been removed.
   */
  readonly onError: (error: FairleadError) => void;
}

/** A socket for Ethernet frames of one device and one protocol (packet(7)). */
export interface PacketSocket {
  /** Sends a whole Ethernet frame. Throws FairleadError (ENETDOWN, ENXIO, ENOBUFS, …). */
  send(frame: Uint8Array): void;
  close(): void;
}

/** Opens a packet socket; needs CAP_NET_RAW. */
export function openPacketSocket(options: PacketSocketOptions): PacketSocket {
  const object = `device ${options.device}`;
  // Protocol 0: nothing is received before the filter is set and bind() is called.
  const open = () => libc().socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const fd = inNetns(options.netns, open);
  if (fd < 0) throw systemError('open packet socket', object);
  if (
    (options.filter && !attachFilter(fd, options.filter)) ||
    libc().bind(fd, linkAddress(options), 20) !== 0
  ) {
    const errno = libc().errno();
    libc().close(fd);
    throw errnoError(errno, 'bind packet socket', object);
  }
  const buffer = new Uint8Array(MAX_BYTES);
  let closed = false;
  const read = () => {
    for (let n = 0; n < MAX_PER_TURN && !closed; n++) {
      const length = Number(libc().recv(fd, buffer, buffer.length, MSG_DONTWAIT));
      if (length < 0) {
        const error = systemError('read packet socket', object);
        if (error.code === 'EINTR') continue;
        if (error.code !== 'EAGAIN' && error.code !== 'EWOULDBLOCK') options.onError(error);
        return;
      }
      options.onFrame(buffer.slice(0, length));
    }
  };
  const poll: Poll = libc().poll(fd, read);
  return {
    send(frame) {
      if (closed) throw new FairleadError('the packet socket is closed', { op: 'send frame', code: 'EBADF' });
      if (Number(libc().send(fd, frame, frame.length, MSG_DONTWAIT)) < 0)
        throw systemError('send frame', object);
    },
    close() {
      if (closed) return;
      closed = true;
      poll.close();
      libc().close(fd);
    },
  };
}

/** IPv6 multicast groups that a device listens to on this process's behalf: its hardware filter lets them in, and MLD reports them to switches. */
export interface GroupMembership {
  /** Joins a group. Joins are counted: a group that was joined twice is left with the second `leave`. */
  join(group: string): void;
  leave(group: string): void;
  close(): void;
}

export function openGroupMembership(device: number, netns?: NetnsRef): GroupMembership {
  const open = () => libc().socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const fd = inNetns(netns, open);
  if (fd < 0) throw systemError('open socket for multicast groups', `device ${device}`);
  const counts = new Map<string, number>();
  const change = (option: number, group: string) => {
    // struct ipv6_mreq
    const request = new Uint8Array(20);
    request.set(addressBytes(group) ?? []);
    new DataView(request.buffer).setUint32(16, device, true);
    return libc().setsockopt(fd, IPPROTO_IPV6, option, request, request.length) === 0;
  };
  return {
    join(group) {
      const count = counts.get(group) ?? 0;
      if (count === 0 && !change(IPV6_ADD_MEMBERSHIP, group))
        throw systemError('join multicast group', group);
      counts.set(group, count + 1);
    },
    leave(group) {
      const count = counts.get(group) ?? 0;
      if (count > 1) counts.set(group, count - 1);
      else if (counts.delete(group)) change(IPV6_DROP_MEMBERSHIP, group);
    },
    close() {
      libc().close(fd);
    },
  };
}

function linkAddress(options: PacketSocketOptions): Uint8Array {
  // struct sockaddr_ll: family, protocol (network order), index; only sendto() reads the remaining fields.
  const address = new Uint8Array(20);
  const view = new DataView(address.buffer);
  view.setUint16(0, AF_PACKET, true);
  view.setUint16(2, options.ethertype);
  view.setInt32(4, options.device, true);
  return address;
}
