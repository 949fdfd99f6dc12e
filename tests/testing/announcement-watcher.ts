import { ETHERTYPE, type FilterInstruction, openPacketSocket } from '../../src/kernel/packet-socket.ts';
import { preparePacketTaps } from '../../src/kernel/packet-tap.ts';
import { getLink, openRouteSocket } from '../../src/kernel/rtnetlink/links.ts';
import { pause, systemClock } from '../../src/lib/clock.ts';
import { arpFrame, readArp } from '../../src/loadbalancer/arp.ts';
import { BROADCAST } from '../../src/loadbalancer/ethernet.ts';
import {
  NEIGHBOUR_FILTER,
  readNeighbourMessage,
  solicitationFrame,
} from '../../src/loadbalancer/neighbour-discovery.ts';

/** An announcement on the wire that an address is at a node. */
export interface Said {
  readonly node: string;
  /** When the kernel saw it, in milliseconds since 1970. */
  readonly at: number;
}

export interface AnnouncementWatcher {
  /** Returns all announcements of an address, in the order on the wire. */
  said(address: string): readonly Said[];
  /**
   * Returns the nodes that announced an address in turn: one entry for each period in which a single node
   * did.
   */
  turns(address: string): string[];
  close(): void;
}

/** Interval between the requests for the addresses to all hosts. */
const ASK_MS = 15;
const NO_MAC = new Uint8Array(6);

const MAX_BYTES = 256;

/** Passes ARP and ICMPv6 that comes in from a cable, not what the bridge sends there. */
const FROM_THE_NODE: readonly FilterInstruction[] = [
  // ldb [SKF_AD_OFF + SKF_AD_PKTTYPE]: PACKET_OUTGOING (linux/filter.h, linux/if_packet.h)
  [0x30, 0, 0, 0xfffff004],
  [0x15, 5, 0, 4],
  // ldh [12]: EtherType; ldb [20]: IPv6's next header
  [0x28, 0, 0, 12],
  [0x15, 2, 0, ETHERTYPE.arp],
  [0x30, 0, 0, 20],
  [0x15, 0, 1, 58],
  [0x06, 0, 0, 0xffff],
  [0x06, 0, 0, 0],
];

/** Returns the address that the sender of a frame claims. */
function addressIn(frame: Uint8Array): string | null {
  const message = readNeighbourMessage(frame);
  if (message) return message.type === 'advertisement' ? message.target : null;
  return readArp(frame)?.sender ?? null;
}

/**
 * Listens at the outer end of every node's cable, which identifies the sender of each frame, while it keeps
 * requesting the addresses from `outside`. One socket for all cables: frames of several would be read in another order than
 * they passed when this process is late.
 */
export async function watchAnnouncements(
  clusterName: string,
  nodes: readonly string[],
  addresses: readonly string[],
  asker: { readonly ipv4: string; readonly ipv6: string },
): Promise<AnnouncementWatcher> {
  const wire = `fl-${clusterName}-wire`;
  const outside = `fl-${clusterName}-outside`;
  const heard = new Map<string, Said[]>(addresses.map((address) => [address, []]));
  const sockets: { close(): void }[] = [];
  const ignore = () => {};
  const fail = (error: Error) => {
    // An unplugged cable does not end the watch.
    if (!('code' in error) || error.code !== 'ENETDOWN') throw error;
  };
  const open = (...args: Parameters<typeof openPacketSocket>) => {
    const socket = openPacketSocket(...args);
    sockets.push(socket);
    return socket;
  };
  const cables = new Map<number, string>();
  {
    using socket = openRouteSocket(wire);
    for (const node of nodes) cables.set(getLink(socket, node).index, node);
  }
  const taps = await preparePacketTaps((ms) => pause(systemClock, ms));
  sockets.push(taps);
  taps.open({
    netns: wire,
    filter: FROM_THE_NODE,
    snapBytes: MAX_BYTES,
    onError: fail,
    onFrame({ data, device, timeNs }) {
      const node = cables.get(device);
      if (node !== undefined)
        heard.get(addressIn(data) ?? '')?.push({ node, at: Number(timeNs / 1000n) / 1000 });
    },
  });
  using socket = openRouteSocket(outside);
  const { index, mac } = getLink(socket, 'eth0');
  const own = Uint8Array.from((mac ?? '').split(':'), (byte) => Number.parseInt(byte, 16));
  const place = { device: index, netns: outside, onFrame: ignore, onError: fail };
  const arp = open({ ...place, ethertype: ETHERTYPE.arp });
  const discovery = open({ ...place, ethertype: ETHERTYPE.ipv6, filter: NEIGHBOUR_FILTER });
  const timer = setInterval(() => {
    for (const address of addresses) {
      if (address.includes(':')) discovery.send(solicitationFrame(address, asker.ipv6, own));
      else {
        const question = { operation: 'request', sender: asker.ipv4, target: address } as const;
        arp.send(arpFrame(BROADCAST, { ...question, senderMac: own, targetMac: NO_MAC }));
      }
    }
  }, ASK_MS);
  return {
    said: (address) => heard.get(address) ?? [],
    turns(address) {
      const turns: string[] = [];
      for (const { node } of heard.get(address) ?? []) if (turns.at(-1) !== node) turns.push(node);
      return turns;
    },
    close() {
      clearInterval(timer);
      for (const one of sockets) one.close();
    },
  };
}
