import type { NetnsRef } from '../kernel/netns.ts';
import {
  ETHERTYPE,
  type GroupMembership,
  openGroupMembership,
  openPacketSocket,
  type PacketSocket,
} from '../kernel/packet-socket.ts';
import { formatMac, macBytes } from '../kernel/rtnetlink/links.ts';
import { canonicalAddress, familyOf } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { ARP_FILTER, arpReply, gratuitousArp, readArp } from './arp.ts';
import { type Mac, sameBytes } from './ethernet.ts';
import {
  NEIGHBOUR_FILTER,
  neighbourReply,
  readNeighbourMessage,
  solicitedNodeGroup,
  unsolicitedAdvertisement,
} from './neighbour-discovery.ts';

/**
 * Times at which a new owner repeats its announcement, in milliseconds since it took over: frames may be
 * lost.
 */
const BURST_MS = [0, 150, 500, 1200, 2500, 5000];
/** Interval of later announcements, since switches and hosts forget. */
const REPEAT_MS = 30_000;
/** For this long after a takeover, frames about the address may come from the previous owner. */
const SETTLE_MS = 1000;

export interface LinkAnnouncerOptions {
  readonly device: { readonly index: number; readonly name: string; readonly mac: string | null };
  /** Default: the namespace of this thread. */
  readonly netns?: NetnsRef | undefined;
  readonly clock: Clock;
  /** Called before each frame is sent; false suppresses the frame. */
  readonly mayAnnounce: (address: string) => boolean;
  /** Reports that another host on the link claims an address. */
  readonly onConflict?: (address: string, mac: string) => void;
  readonly onError: (error: FairleadError) => void;
}

/**
 * Makes a link's hosts send packets for addresses to this node, by ARP (RFC 826, 5227) and Neighbour Discovery (RFC
 * 4861), without putting the addresses on the device: the kernel would answer for them on every node.
 */
export interface LinkAnnouncer {
  /** Starts answering for the address and announces it to all hosts. */
  announce(address: string): void;
  /** Stops answering. Hosts are not notified: the next owner does that. */
  withdraw(address: string): void;
  readonly addresses: ReadonlySet<string>;
  close(): void;
}

export function openLinkAnnouncer(options: LinkAnnouncerOptions): LinkAnnouncer {
  const { device, clock, mayAnnounce, onError } = options;
  const mac = device.mac === null ? null : macBytes(device.mac);
  if (!mac) {
    throw new FairleadError(`${device.name} has no Ethernet address`, {
      op: 'announce load-balancer addresses',
      code: 'EINVAL',
      object: device.name,
      hint: 'set loadBalancer.interface to the interface towards the clients',
    });
  }
  const announced = new Map<string, { readonly since: number; cancel: () => void }>();
  const place = { device: device.index, netns: options.netns };
  const heardFrom = (address: string, other: Mac) => {
    const entry = announced.get(address);
    if (!entry || sameBytes(other, mac) || clock.now() - entry.since < SETTLE_MS) return;
    options.onConflict?.(address, formatMac(other));
  };
  const answers = (address: string) => announced.has(address) && mayAnnounce(address);
  const send = (socket: PacketSocket, frame: Uint8Array) => {
    try {
      socket.send(frame);
    } catch (error) {
      if (!(error instanceof FairleadError)) throw error;
      onError(error);
    }
  };
  const arp = openPacketSocket({
    ...place,
    ethertype: ETHERTYPE.arp,
    filter: ARP_FILTER,
    onError,
    onFrame(frame) {
      const packet = readArp(frame);
      if (!packet) return;
      heardFrom(packet.sender, packet.senderMac);
      // A gratuitous ARP request needs no reply.
      if (packet.operation !== 'request' || packet.sender === packet.target) return;
      if (answers(packet.target)) send(arp, arpReply(packet, mac));
    },
  });
  let groups: GroupMembership | undefined;
  let discovery: PacketSocket;
  try {
    groups = openGroupMembership(device.index, options.netns);
    discovery = openPacketSocket({
      ...place,
      ethertype: ETHERTYPE.ipv6,
      filter: NEIGHBOUR_FILTER,
      onError,
      onFrame(frame) {
        const message = readNeighbourMessage(frame);
        if (!message) return;
        if (message.type === 'advertisement') heardFrom(message.target, message.mac ?? message.frameSource);
        else if (answers(message.target)) send(discovery, neighbourReply(message, mac));
      },
    });
  } catch (error) {
    arp.close();
    groups?.close();
    throw error;
  }
  const memberships = groups;

  const tell = (address: string) => {
    if (!mayAnnounce(address)) return;
    if (familyOf(address) === 'ipv6') send(discovery, unsolicitedAdvertisement(address, mac));
    else for (const frame of gratuitousArp(address, mac)) send(arp, frame);
  };
  const repeat = (address: string, since: number, turn: number): (() => void) => {
    const at = BURST_MS[turn];
    const wait = at === undefined ? REPEAT_MS : Math.max(0, since + at - clock.now());
    return clock.after(wait, () => {
      const entry = announced.get(address);
      if (!entry) return;
      tell(address);
      entry.cancel = repeat(address, since, turn + 1);
    });
  };
  return {
    announce(text) {
      const address = canonicalAddress(text);
      if (address === null || announced.has(address)) return;
      if (address.includes(':')) memberships.join(solicitedNodeGroup(address));
      const entry = { since: clock.now(), cancel: () => {} };
      announced.set(address, entry);
      tell(address);
      entry.cancel = repeat(address, entry.since, 1);
    },
    withdraw(text) {
      const address = canonicalAddress(text) ?? '';
      const entry = announced.get(address);
      if (!entry) return;
      entry.cancel();
      announced.delete(address);
      if (address.includes(':')) memberships.leave(solicitedNodeGroup(address));
    },
    get addresses() {
      return new Set(announced.keys());
    },
    close() {
      for (const { cancel } of announced.values()) cancel();
      announced.clear();
      arp.close();
      discovery.close();
      memberships.close();
    },
  };
}
