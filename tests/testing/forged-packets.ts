import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { libc } from '../../src/kernel/libc.ts';
import { bindUdpIn, inNetns, openTcpIn, socketAddress } from '../../src/kernel/netns.ts';
import { readFrame } from '../../src/kernel/packet.ts';
import { openPacketSocket } from '../../src/kernel/packet-socket.ts';
import { getLink, openRouteSocket } from '../../src/kernel/rtnetlink/links.ts';
import { linkLocal, tunnelMac } from '../../src/network/overlay-routes.ts';
import { deniedWays } from './denied-packets.ts';
import {
  arp,
  BROADCAST,
  be16,
  bytesOf,
  ETHERTYPE,
  ethernet,
  groupMac,
  ip,
  ipFrame,
  join,
  ND,
  neighbourAdvertisement,
  neighbourSolicitation,
  PROTOCOL,
  redirect,
  routerAdvertisement,
  UNSPECIFIED_MAC,
  udp,
  vxlan,
} from './forged-frames.ts';

/** Ways past the policies of a cluster: none of their packets may arrive. */

export type Family = 4 | 6;

/** A pod, a node or a host outside: its namespace and its device there. */
export interface Station {
  readonly netns: string;
  readonly device: number;
  readonly mac: string;
  /** By family; absent: it has none. */
  readonly ip: Readonly<Partial<Record<Family, string>>>;
}

export interface ForgeryScene {
  readonly families: readonly Family[];
  /** Isolated for egress by a policy without rules, on the first node. */
  readonly walled: Station;
  /** A pod that no policy isolates, and that the servers' policies do not admit, on the first node. */
  readonly foe: Station;
  /** A pod that the servers admit, on the first node; `farFriend`: on the second one. */
  readonly friend: Station;
  readonly farFriend: Station;
  /** Servers that admit only friends, on the first and on the second node. */
  readonly near: Station;
  readonly far: Station;
  readonly outside: Station;
  readonly nodes: readonly [NodeStation, NodeStation];
}

export interface NodeStation extends Station {
  readonly name: string;
  /** The pods' gateway on the node. */
  readonly gatewayMac: string;
  readonly gateway: Readonly<Partial<Record<Family, string>>>;
  /** An address of the node's pod network that no pod has. */
  readonly unused: Readonly<Partial<Record<Family, string>>>;
}

/** One way to reach a place that a policy forbids. */
export interface Way {
  readonly name: string;
  /** Sends it once; `mark` is in its payload. */
  readonly send: (mark: Uint8Array) => void;
}

/** A result: the way, and how many of its three attempts arrived, at which place. */
export interface Passed {
  readonly way: string;
  readonly at: string;
  readonly count: number;
}

const ATTEMPTS = 3;
const VXLAN_PORT = 4789;
const VXLAN_ID = 4242;
/** The node port of a Service whose endpoint is the first node's tunnel. */
export const TUNNEL_NODE_PORT = 30_789;
const HEALTH_PORT = 10_256;
/** Sockets of the nodes that receive datagrams. */
const NODE_PORT = 7999;
const MARK = /forged (\d+);/g;
const SETTLE_MS = 150;
/** Local experimental EtherType (IEEE 802). */
const UNKNOWN_ETHERTYPE = 0x88b5;
/** Groups that a bridge does not forward, and may treat specially. */
const RESERVED_GROUPS = ['01:80:c2:00:00:00', '01:80:c2:00:00:03', '01:80:c2:00:00:0e'];

// asm-generic/socket.h, linux/in6.h
const SOL_SOCKET = 1;
const SO_DONTROUTE = 5;
const SO_BROADCAST = 6;
const SO_BINDTODEVICE = 25;

/** Returns the station of a namespace by its device. */
export function stationOf(netns: string, name: string, ips: readonly string[]): Station {
  using socket = openRouteSocket({ path: netns });
  const { index, mac } = getLink(socket, name);
  const find = (family: Family) => ips.find((one) => one.includes(':') === (family === 6));
  const [v4, v6] = [find(4), find(6)];
  return {
    netns,
    device: index,
    mac: mac ?? '',
    ip: { ...(v4 === undefined ? {} : { 4: v4 }), ...(v6 === undefined ? {} : { 6: v6 }) },
  };
}

/** Sends a frame from a station, as a process with CAP_NET_RAW does. */
export function sendFrame({ netns, device }: Station, frame: Uint8Array): void {
  const socket = openPacketSocket({
    device,
    ethertype: 0,
    netns: { path: netns },
    onFrame: () => {},
    onError: () => {},
  });
  try {
    socket.send(frame);
  } finally {
    socket.close();
  }
}

const textOption = (text: string) => new Uint8Array(Buffer.from(`${text}\0`));

/** Sends a datagram past the routes of a pod, as a process without capabilities can. */
function sendUnrouted(from: Station, destination: string, payload: Uint8Array): void {
  const any = destination.includes(':') ? '::' : '0.0.0.0';
  const fd = bindUdpIn({ path: from.netns }, any, 0);
  const one = Uint8Array.of(1, 0, 0, 0);
  try {
    libc().setsockopt(fd, SOL_SOCKET, SO_BROADCAST, one, 4);
    libc().setsockopt(fd, SOL_SOCKET, SO_DONTROUTE, one, 4);
    const device = textOption('eth0');
    libc().setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, device.length);
    const to = scoped(destination, 8080, from.device);
    if (libc().connect(fd, to, to.length) === 0) libc().send(fd, payload, payload.length, 0);
  } finally {
    libc().close(fd);
  }
}

/** Begins a connection past the routes of a pod: the server sees a SYN to `port`. */
function connectUnrouted(from: Station, destination: string, port: number): number {
  const fd = openTcpIn({ path: from.netns }, destination.includes(':') ? 'ipv6' : 'ipv4');
  const device = textOption('eth0');
  libc().setsockopt(fd, SOL_SOCKET, SO_DONTROUTE, Uint8Array.of(1, 0, 0, 0), 4);
  libc().setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, device.length);
  const to = scoped(destination, port, from.device);
  libc().connect(fd, to, to.length);
  return fd;
}

/** A struct sockaddr with the scope of a device. */
function scoped(address: string, port: number, device: number): Uint8Array {
  const to = socketAddress(address, port);
  if (to.length === 28) new DataView(to.buffer).setUint32(24, device, true);
  return to;
}

/** Returns the ways of a scene. */
export function forgedWays(scene: ForgeryScene): Way[] {
  const ways = scene.families.flatMap((family) => [
    ...layerTwoWays(scene, family),
    ...rawWays(scene, family),
    ...oddWays(scene, family),
    ...(family === 4 ? arpWays(scene) : neighbourWays(scene)),
    ...tunnelWays(scene, family),
    ...deniedWays(scene, family, NODE_PORT).map(
      ({ name, from, frames }): Way => ({
        name,
        send: (mark) => {
          for (const frame of frames(mark)) sendFrame(from, frame);
        },
      }),
    ),
  ]);
  if (scene.families.includes(6)) return ways;
  const local = withLinkLocals(scene);
  return [...ways, ...layerTwoWays(local, 6), ...neighbourWays(local)];
}

/** Returns the scene of a cluster of IPv4 alone with the IPv6 addresses that its devices have nevertheless. */
function withLinkLocals(scene: ForgeryScene): ForgeryScene {
  const station = <T extends Station>(one: T): T => ({ ...one, ip: { ...one.ip, 6: linkLocal(one.mac) } });
  const node = (one: NodeStation): NodeStation => ({
    ...station(one),
    gateway: { ...one.gateway, 6: linkLocal(one.gatewayMac) },
  });
  return {
    ...scene,
    walled: station(scene.walled),
    foe: station(scene.foe),
    friend: station(scene.friend),
    near: station(scene.near),
    nodes: [node(scene.nodes[0]), node(scene.nodes[1])],
  };
}

const named = (family: Family, ways: readonly Way[]): Way[] =>
  ways.map((way) => ({ ...way, name: `IPv${family}: ${way.name}` }));

/** A packet that its sender may not send to a pod, around the node. */
function layerTwoWays({ walled, near, nodes }: ForgeryScene, family: Family): Way[] {
  const [own, to] = [walled.ip[family] ?? '', near.ip[family] ?? ''];
  const packet = (destination: string, mark: Uint8Array, source = own) =>
    ip({ source, destination }, PROTOCOL.udp, udp({ source, destination }, 8080, mark));
  const direct = (name: string, destination: string, mac: string, source = own): Way => ({
    name,
    send: (mark) =>
      sendFrame(walled, ipFrame({ from: walled.mac, to: mac }, packet(destination, mark, source))),
  });
  const groups = family === 4 ? ['255.255.255.255', broadcastOf(own), '224.0.0.1'] : ['ff02::1', 'ff05::2'];
  const [nearLocal, ownLocal] = [linkLocal(near.mac), linkLocal(walled.mac)];
  return named(family, [
    direct("a frame to the server's MAC", to, near.mac),
    direct('a frame to the broadcast MAC', to, BROADCAST),
    ...groups.flatMap((group) => [
      direct(`to ${group}`, group, groupMac(group)),
      direct(`to ${group} in a frame to the server`, group, near.mac),
      direct(`to ${group} in a frame to the gateway`, group, nodes[0].gatewayMac),
      { name: `a socket to ${group}`, send: (mark: Uint8Array) => sendUnrouted(walled, group, mark) },
    ]),
    { name: 'a socket with SO_DONTROUTE to the server', send: (mark) => sendUnrouted(walled, to, mark) },
    ...(family === 6
      ? [
          direct('between link-local addresses', nearLocal, near.mac, ownLocal),
          {
            name: "a socket to the server's link-local address",
            send: (mark: Uint8Array) => sendUnrouted(walled, nearLocal, mark),
          },
        ]
      : []),
  ]);
}

function broadcastOf(address: string): string {
  return address.replace(/\d+$/, '255');
}

/** A packet through the gateway whose source the sender does not have. */
function rawWays(scene: ForgeryScene, family: Family): Way[] {
  const { foe, walled, friend, farFriend, near, far, outside, nodes } = scene;
  const [node, other] = nodes;
  const sources: [name: string, address: string | undefined][] = [
    ['an admitted pod of this node', friend.ip[family]],
    ['an admitted pod of another node', farFriend.ip[family]],
    ['an unused address of this node', node.unused[family]],
    ['an unused address of another node', other.unused[family]],
    ['the gateway', node.gateway[family]],
    ['this node', node.ip[family]],
    ['another node', other.ip[family]],
    ['a host outside', outside.ip[family]],
    ['nothing', family === 4 ? '0.0.0.0' : '::'],
    ['loopback', family === 4 ? '127.0.0.1' : '::1'],
    ['a group', family === 4 ? '224.0.0.5' : 'ff02::5'],
    ...(family === 6
      ? ([
          ["the sender's link-local address", linkLocal(foe.mac)],
          ["the server's link-local address", linkLocal(near.mac)],
          ['an IPv4 address as IPv6', '::ffff:10.0.0.1'],
        ] as [string, string][])
      : []),
  ];
  const targets: [name: string, from: Station, to: string | undefined][] = [
    ['a server of this node', foe, near.ip[family]],
    ['a server of another node', foe, far.ip[family]],
    ['a host outside', walled, outside.ip[family]],
  ];
  const send = (
    from: Station,
    macs: { from: string; to: string },
    source: string,
    to: string,
    mark: Uint8Array,
  ) => {
    const ends = { source, destination: to };
    sendFrame(from, ipFrame(macs, ip(ends, PROTOCOL.udp, udp(ends, 8080, mark))));
  };
  const gateway = node.gatewayMac;
  return named(family, [
    ...targets.flatMap(([toName, from, to]) =>
      sources.map(
        ([name, source]): Way => ({
          name: `from ${name} to ${toName}`,
          send: (mark) => send(from, { from: from.mac, to: gateway }, source ?? '', to ?? '', mark),
        }),
      ),
    ),
    ...targets.map(
      ([toName, from, to]): Way => ({
        name: `with the address and MAC of an admitted pod to ${toName}`,
        send: (mark) =>
          send(from, { from: friend.mac, to: gateway }, friend.ip[family] ?? '', to ?? '', mark),
      }),
    ),
    {
      name: "from an admitted pod in a frame to the server's MAC",
      send: (mark) =>
        send(foe, { from: foe.mac, to: near.mac }, friend.ip[family] ?? '', near.ip[family] ?? '', mark),
    },
    {
      name: "from the gateway's MAC in a frame to the server's MAC",
      send: (mark) =>
        send(foe, { from: gateway, to: near.mac }, friend.ip[family] ?? '', near.ip[family] ?? '', mark),
    },
    ...(family === 6
      ? [
          // A node that has an entry for the server's link-local address would forward it past the server's policies.
          {
            name: "from its own address to the server's link-local address by the gateway",
            send: (mark: Uint8Array) => {
              const [ownLocal, gatewayLocal] = [linkLocal(near.mac), linkLocal(gateway)];
              const asks = { source: ownLocal, destination: gatewayLocal };
              const question = neighbourSolicitation(asks, gatewayLocal, near.mac);
              sendFrame(near, ipFrame({ from: near.mac, to: gateway }, question));
              send(foe, { from: foe.mac, to: gateway }, foe.ip[6] ?? '', ownLocal, mark);
            },
          },
          {
            name: "from its own address to the gateway's link-local address",
            send: (mark: Uint8Array) => {
              const ends = { source: walled.ip[6] ?? '', destination: linkLocal(gateway) };
              const packet = ip(ends, PROTOCOL.udp, udp(ends, NODE_PORT, mark));
              sendFrame(walled, ipFrame({ from: walled.mac, to: gateway }, packet));
            },
          },
        ]
      : [
          {
            name: 'from its own address to loopback on the node',
            send: (mark: Uint8Array) => {
              const ends = { source: foe.ip[4] ?? '', destination: '127.0.0.1' };
              const packet = ip(ends, PROTOCOL.udp, udp(ends, NODE_PORT, mark));
              sendFrame(foe, ipFrame({ from: foe.mac, to: gateway }, packet));
            },
          },
          {
            name: 'from a host outside to loopback on the node',
            send: (mark: Uint8Array) => {
              const ends = { source: outside.ip[4] ?? '', destination: '127.0.0.1' };
              const packet = ip(ends, PROTOCOL.udp, udp(ends, NODE_PORT, mark));
              sendFrame(outside, ipFrame({ from: outside.mac, to: node.mac }, packet));
            },
          },
        ]),
    {
      name: "with a pod's own address and another MAC to a node",
      send: (mark) => {
        const ends = { source: foe.ip[family] ?? '', destination: node.ip[family] ?? '' };
        const packet = ip(ends, PROTOCOL.udp, udp(ends, NODE_PORT, mark));
        sendFrame(foe, ipFrame({ from: '02:00:00:00:00:77', to: gateway }, packet));
      },
    },
    ...['an admitted pod of this node', 'an unused address of this node', 'another node'].map(
      (name): Way => ({
        name: `from ${name} to a socket of the node`,
        send: (mark) => {
          const source = sources.find(([one]) => one === name)?.[1] ?? '';
          const ends = { source, destination: node.ip[family] ?? '' };
          sendFrame(
            foe,
            ipFrame({ from: foe.mac, to: gateway }, ip(ends, PROTOCOL.udp, udp(ends, NODE_PORT, mark))),
          );
        },
      }),
    ),
  ]);
}

/** Packets that a filter may read differently than the kernel. */
function oddWays({ foe, friend, near, nodes }: ForgeryScene, family: Family): Way[] {
  const [node] = nodes;
  const gateway = node.gatewayMac;
  const ends = { source: friend.ip[family] ?? '', destination: near.ip[family] ?? '' };
  const macs = { from: foe.mac, to: gateway };
  const inner = (mark: Uint8Array) => udp(ends, 8080, mark);
  const plain = (mark: Uint8Array) => ip(ends, PROTOCOL.udp, inner(mark));
  const type = family === 4 ? ETHERTYPE.ipv4 : ETHERTYPE.ipv6;
  const tag = (id: number, next: number) => [...be16(id), ...be16(next)];
  const way = (name: string, frame: (mark: Uint8Array) => Uint8Array): Way => ({
    name,
    send: (mark) => sendFrame(foe, frame(mark)),
  });
  const own = { source: foe.ip[family] ?? '', destination: node.ip[family] ?? '' };
  const toNode = { source: friend.ip[family] ?? '', destination: node.ip[family] ?? '' };
  const tags = [0, 1, 100].map((id) =>
    way(`a packet with the VLAN tag ${id}`, (mark) =>
      ethernet(macs, ETHERTYPE.vlan, join(tag(id, type), plain(mark))),
    ),
  );
  const shared = [
    ...tags,
    way("a VLAN tag in a frame to the server's MAC", (mark) =>
      ethernet({ ...macs, to: near.mac }, ETHERTYPE.vlan, join(tag(1, type), plain(mark))),
    ),
    way('a packet with two VLAN tags', (mark) =>
      ethernet(macs, ETHERTYPE.qinq, join(tag(1, ETHERTYPE.vlan), tag(1, type), plain(mark))),
    ),
    ...[near.mac, gateway, BROADCAST].map((to) =>
      way(
        `an unknown EtherType to ${to === gateway ? 'the gateway' : to === near.mac ? 'the server' : 'all'}`,
        (mark) => ethernet({ ...macs, to }, UNKNOWN_ETHERTYPE, plain(mark)),
      ),
    ),
    way('an IEEE 802.3 frame to the server', (mark) =>
      ethernet({ ...macs, to: near.mac }, 0x40, join([0xaa, 0xaa, 3, 0, 0, 0], be16(type), plain(mark))),
    ),
    way('the other EtherType', (mark) =>
      ethernet(macs, family === 4 ? ETHERTYPE.ipv6 : ETHERTYPE.ipv4, plain(mark)),
    ),
    ...RESERVED_GROUPS.flatMap((to) => [
      way(`a frame to ${to} for a server`, (mark) => ipFrame({ ...macs, to }, plain(mark))),
      way(`a frame to ${to} for a socket of the node`, (mark) =>
        ipFrame({ ...macs, to }, ip(toNode, PROTOCOL.udp, udp(toNode, NODE_PORT, mark))),
      ),
    ]),
    way('a packet inside IP to the node', (mark) =>
      ipFrame(macs, ip(own, family === 4 ? PROTOCOL.ipv4 : PROTOCOL.ipv6, plain(mark))),
    ),
    way('a packet inside IP from an admitted pod', (mark) =>
      ipFrame(macs, ip(ends, family === 4 ? PROTOCOL.ipv4 : PROTOCOL.ipv6, plain(mark))),
    ),
  ];
  if (family === 4) {
    const sourceRoute = join([131, 7, 4], bytesOf(node.gateway[4] ?? ''), [0]);
    const recordRoute = join([7, 7, 4], bytesOf('0.0.0.0'), [0]);
    const options = [
      ['source routing', sourceRoute],
      ['a record of its route', recordRoute],
    ] as const;
    return named(family, [
      ...shared,
      ...options.map(([name, bytes]) =>
        way(`a packet with ${name}`, (mark) =>
          ipFrame(macs, ip(ends, PROTOCOL.udp, inner(mark), { options: bytes })),
        ),
      ),
      way('the first fragment of a packet', (mark) =>
        ipFrame(
          macs,
          ip(ends, PROTOCOL.udp, join(inner(mark), new Uint8Array(8)).subarray(0, 24), {
            fragment: { offset: 0, more: true },
          }),
        ),
      ),
      {
        name: 'a packet in fragments',
        send: (mark) => {
          const whole = udp(ends, 8080, join(new Uint8Array(40), mark));
          for (const [offset, more] of [
            [0, true],
            [2, true],
            [4, false],
          ] as const) {
            const part = more ? whole.subarray(offset * 8, offset * 8 + 16) : whole.subarray(offset * 8);
            sendFrame(foe, ipFrame(macs, ip(ends, PROTOCOL.udp, part, { fragment: { offset, more } })));
          }
        },
      },
      way('a later fragment alone', (mark) =>
        ipFrame(macs, ip(ends, PROTOCOL.udp, mark, { fragment: { offset: 3, more: false } })),
      ),
    ]);
  }
  const header = (next: number, body: readonly number[]) => [next, 0, ...body];
  const padding = [1, 4, 0, 0, 0, 0];
  const first = [
    ['hop-by-hop options', PROTOCOL.hopByHop, header(PROTOCOL.udp, padding)],
    ['destination options', PROTOCOL.destinationOptions, header(PROTOCOL.udp, padding)],
    ['a fragment header', PROTOCOL.fragment, [PROTOCOL.udp, 0, 0, 0, 0, 0, 0, 9]],
  ] as const;
  return named(family, [
    ...shared,
    ...first.map(([name, protocol, bytes]) =>
      way(`a packet with ${name}`, (mark) => ipFrame(macs, ip(ends, protocol, join(bytes, inner(mark))))),
    ),
    way('a home address option of an admitted pod', (mark) => {
      const from = { ...ends, source: foe.ip[6] ?? '' };
      const option = join([PROTOCOL.udp, 2, 1, 2, 0, 0, 201, 16], bytesOf(ends.source));
      return ipFrame(macs, ip(from, PROTOCOL.destinationOptions, join(option, inner(mark))));
    }),
  ]);
}

/** ARP messages that claim an address; their effect on the node is tested separately. */
function arpWays({ foe, friend, near, nodes }: ForgeryScene): Way[] {
  const [node] = nodes;
  const claimed: [name: string, address: string | undefined][] = [
    ["another pod's address", friend.ip[4]],
    ["the gateway's address", node.gateway[4]],
    ["the server's own address", near.ip[4]],
    ['its own address', foe.ip[4]],
  ];
  return named(
    4,
    claimed.flatMap(([name, senderIp = '']) =>
      [BROADCAST, near.mac].flatMap((to) =>
        (['request', 'reply'] as const).map((operation) => ({
          name: `ARP ${operation} with ${name} to ${to === BROADCAST ? 'all' : 'the server'}`,
          send: (mark: Uint8Array) => {
            const message = arp({
              operation,
              senderMac: foe.mac,
              senderIp,
              targetMac: operation === 'request' ? UNSPECIFIED_MAC : near.mac,
              targetIp: near.ip[4] ?? '',
            });
            sendFrame(foe, ethernet({ from: foe.mac, to }, ETHERTYPE.arp, join(message, mark)));
          },
        })),
      ),
    ),
  );
}

function neighbourWays({ foe, friend, near, nodes }: ForgeryScene): Way[] {
  const [node] = nodes;
  const gatewayLocal = linkLocal(node.gatewayMac);
  const [own, server] = [foe.ip[6] ?? '', near.ip[6] ?? ''];
  const groups = [
    { name: 'all', ip: 'ff02::1', mac: groupMac('ff02::1') },
    { name: 'the server', ip: server, mac: near.mac },
  ];
  const way = (name: string, to: string, packet: Uint8Array): Way => ({
    name,
    send: (mark) => sendFrame(foe, join(ipFrame({ from: foe.mac, to }, packet), mark)),
  });
  const claimed: [name: string, address: string | undefined][] = [
    ["another pod's address", friend.ip[6]],
    ["the gateway's address", node.gateway[6]],
    ['its own address', own],
  ];
  const solicited = `ff02::1:ff${server.split(':').at(-1)?.padStart(4, '0').slice(-2) ?? ''}:0`;
  return named(6, [
    ...groups.flatMap(({ name, ip: destination, mac }) => [
      ...claimed.map(([what, target = '']) =>
        way(
          `a neighbour advertisement of ${what} to ${name}`,
          mac,
          neighbourAdvertisement({ source: target, destination }, target, foe.mac),
        ),
      ),
      way(
        `a router advertisement of the gateway to ${name}`,
        mac,
        routerAdvertisement({ source: gatewayLocal, destination }, foe.mac),
      ),
      way(
        `a router advertisement of its own to ${name}`,
        mac,
        routerAdvertisement({ source: linkLocal(foe.mac), destination }, foe.mac),
      ),
      way(
        `a redirect of the gateway to ${name}`,
        mac,
        redirect({ source: gatewayLocal, destination }, linkLocal(foe.mac), friend.ip[6] ?? ''),
      ),
      way(
        `a neighbour solicitation from another pod to ${name}`,
        mac,
        neighbourSolicitation({ source: friend.ip[6] ?? '', destination }, server, foe.mac),
      ),
      way(
        `a neighbour solicitation of its own to ${name}`,
        mac,
        neighbourSolicitation({ source: own, destination }, server, foe.mac),
      ),
    ]),
    way(
      "a neighbour solicitation to the server's group",
      groupMac(solicited),
      neighbourSolicitation({ source: own, destination: solicited }, server, foe.mac),
    ),
    way('a router solicitation', groupMac('ff02::2'), routerSolicitation(linkLocal(foe.mac))),
  ]);
}

function routerSolicitation(source: string): Uint8Array {
  const ends = { source, destination: 'ff02::2' };
  return ip(ends, PROTOCOL.icmpv6, join([ND.routerSolicitation, 0, 0, 0, 0, 0, 0, 0]), { hopLimit: 255 });
}

/** VXLAN packets to the nodes, from anything but a node, or with inner sources that are not the sender's. */
function tunnelWays(scene: ForgeryScene, family: Family): Way[] {
  const { foe, walled, friend, farFriend, near, far, outside, nodes } = scene;
  const [node, other] = nodes;
  const outerFamily: Family = scene.families.includes(4) ? 4 : 6;
  const inners: [name: string, address: string | undefined][] = [
    ['an admitted pod of the first node', friend.ip[family]],
    ['an admitted pod of the second node', farFriend.ip[family]],
    ['an unused address', other.unused[family]],
    ['a host outside', outside.ip[family]],
  ];
  const targets: [node: NodeStation, server: Station][] = [
    [node, near],
    [other, far],
  ];
  /** `via`: the MAC of the next hop. */
  const way = (
    name: string,
    from: Station,
    outerSource: string,
    [target, server]: [NodeStation, Station],
    inner: string,
    via: string,
    outerDestination = target.ip[outerFamily] ?? '',
    outerPort = VXLAN_PORT,
  ): Way => ({
    name: `${name} to ${target.name}`,
    send(mark) {
      const ends = { source: inner, destination: server.ip[family] ?? '' };
      const frame = ipFrame(
        { from: tunnelMac(from === other ? other.name : node.name), to: tunnelMac(target.name) },
        ip(ends, PROTOCOL.udp, udp(ends, 8080, mark)),
      );
      const outer = { source: outerSource, destination: outerDestination };
      sendFrame(
        from,
        ipFrame(
          { from: from.mac, to: via },
          ip(outer, PROTOCOL.udp, udp(outer, outerPort, vxlan(VXLAN_ID, frame))),
        ),
      );
    },
  });
  const from = (station: Station) => station.ip[outerFamily] ?? '';
  return named(family, [
    ...targets.flatMap((target) =>
      inners.flatMap(([name, inner = '']) => [
        way(`VXLAN of a pod with ${name}`, foe, from(foe), target, inner, node.gatewayMac),
        way(`VXLAN of an isolated pod with ${name}`, walled, from(walled), target, inner, node.gatewayMac),
        way(
          `VXLAN of a pod as the other node with ${name}`,
          foe,
          from(other),
          target,
          inner,
          node.gatewayMac,
        ),
        way(`VXLAN of a host outside with ${name}`, outside, from(outside), target, inner, target[0].mac),
      ]),
    ),
    ...inners.map(([name, inner = '']) =>
      way(
        `VXLAN of a pod to the gateway's address with ${name}`,
        foe,
        from(foe),
        [node, near],
        inner,
        node.gatewayMac,
        node.gateway[outerFamily],
      ),
    ),
    // The other node masquerades them.
    ...inners.flatMap(([name, inner = '']) =>
      [
        { by: 'a pod', sender: foe, via: node.gatewayMac },
        { by: 'a host outside', sender: outside, via: other.mac },
      ].map(({ by, sender, via }) =>
        way(
          `VXLAN of ${by} by a node port of the other node with ${name}`,
          sender,
          from(sender),
          [node, near],
          inner,
          via,
          other.ip[outerFamily],
          TUNNEL_NODE_PORT,
        ),
      ),
    ),
    // A node that has been taken over can send as its own pods, not as others.
    ...inners
      .filter(([name]) => name !== 'an admitted pod of the second node' && name !== 'an unused address')
      .map(([name, inner = '']) =>
        way(`VXLAN of the second node with ${name}`, other, from(other), [node, near], inner, node.mac),
      ),
  ]);
}

/** Sends every way three times and returns those that arrived. Packets of admitted pods must arrive: else it throws. */
export async function passedWays(scene: ForgeryScene): Promise<Passed[]> {
  const ways = forgedWays(scene);
  const seen = new Map<string, number>();
  const count = (at: string, bytes: Uint8Array) => {
    for (const [, index] of Buffer.from(bytes).toString('latin1').matchAll(MARK)) {
      const key = `${index} ${at}`;
      seen.set(key, (seen.get(key) ?? 0) + 1);
    }
  };
  const closers: (() => void)[] = [];
  try {
    const senders = new Set([scene.foe, scene.walled].flatMap((one) => Object.values(one.ip)));
    for (const at of ['near', 'far', 'outside'] as const) closers.push(watch(scene[at], at, senders, count));
    for (const node of scene.nodes)
      for (const family of scene.families)
        closers.push(await receive(node, family, (bytes) => count(node.name, bytes)));
    for (const [i, way] of ways.entries()) {
      for (let n = 0; n < ATTEMPTS; n++) way.send(new Uint8Array(Buffer.from(`forged ${i};`)));
      // The buffers of the sockets that watch hold some hundred frames.
      if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await sendHonestly(scene, ways.length, seen);
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  } finally {
    for (const close of closers) close();
  }
  const connected = ways.length;
  return [
    ...[...seen].flatMap(([key, times]): Passed[] => {
      const [index = '', ...at] = key.split(' ');
      const way = ways[Number(index)];
      return Number(index) >= connected || !way
        ? []
        : [{ way: way.name, at: at.join(' '), count: Math.min(times, ATTEMPTS) }];
    }),
    ...(await passedConnections(scene)),
  ];
}

/** The number of ways that `passedWays` tries. */
export const wayCount = (scene: ForgeryScene): number => forgedWays(scene).length + connections(scene).length;

function watch(
  station: Station,
  at: string,
  senders: ReadonlySet<string>,
  count: (at: string, frame: Uint8Array) => void,
): () => void {
  const own = Buffer.from(station.mac.replaceAll(':', ''), 'hex');
  const socket = openPacketSocket({
    device: station.device,
    ethertype: 3,
    netns: { path: station.netns },
    onFrame(frame) {
      // Its own frames, and, on the wire outside, frames that a switch floods.
      if (own.equals(frame.subarray(6, 12))) return;
      if (at === 'outside' && ((frame[0] ?? 0) & 1) === 0 && !own.equals(frame.subarray(0, 6))) return;
      // A node without a tunnel answers that nothing listens; a pod sends errors only as a way of its own.
      const packet = readFrame(frame, null);
      if (packet?.icmp && !senders.has(packet.source)) return;
      count(at, frame);
    },
    onError: () => {},
  });
  return () => socket.close();
}

async function receive(
  node: NodeStation,
  family: Family,
  onData: (bytes: Uint8Array) => void,
): Promise<() => void> {
  const socket = createSocket(family === 4 ? 'udp4' : 'udp6');
  const listening = once(socket, 'listening');
  socket.bind({ fd: bindUdpIn({ path: node.netns }, family === 4 ? '0.0.0.0' : '::', NODE_PORT) });
  await listening;
  socket.on('message', onData);
  return () => socket.close();
}

/** Sends packets of pods that may send them, after the others and on the same way, until each arrived three times. */
async function sendHonestly(
  { families, friend, near, far, foe, outside, nodes }: ForgeryScene,
  index: number,
  seen: ReadonlyMap<string, number>,
): Promise<void> {
  const targets = [
    ['near', friend, near],
    ['far', friend, far],
    ['outside', foe, outside],
  ] as const;
  for (const family of families) {
    for (const [at, from, to] of targets) {
      const key = `${index + family} ${at}`;
      const deadline = performance.now() + 20_000;
      while ((seen.get(key) ?? 0) < ATTEMPTS) {
        if (performance.now() > deadline)
          throw new Error(`IPv${family}: an honest packet did not reach ${at}`);
        const ends = { source: from.ip[family] ?? '', destination: to.ip[family] ?? '' };
        const mark = new Uint8Array(Buffer.from(`forged ${index + family};`));
        const packet = ip(ends, PROTOCOL.udp, udp(ends, 8080, mark));
        sendFrame(from, ipFrame({ from: from.mac, to: nodes[0].gatewayMac }, packet));
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
  }
}

interface Connection {
  readonly name: string;
  readonly from: Station;
  readonly to: string;
  readonly port: number;
}

/** Connections of an unprivileged process of a pod that is isolated for egress. */
function connections({ families, walled, near, nodes }: ForgeryScene): Connection[] {
  const [node] = nodes;
  return families.flatMap((family): Connection[] => [
    {
      name: `IPv${family}: TCP with SO_BINDTODEVICE and SO_DONTROUTE to a server`,
      from: walled,
      to: near.ip[family] ?? '',
      port: 8080,
    },
    {
      name: `IPv${family}: TCP to the health port of the node by the gateway's address`,
      from: walled,
      to: node.gateway[family] ?? '',
      port: HEALTH_PORT,
    },
    ...linkLocalConnections(walled, near, node),
  ]);
}

/** Every pod has a link-local address, in clusters of IPv4 alone, too. */
const linkLocalConnections = (walled: Station, near: Station, node: NodeStation): Connection[] => [
  {
    name: 'TCP to the link-local address of a server',
    from: walled,
    to: linkLocal(near.mac),
    port: 8080,
  },
  {
    name: 'TCP to the health port of the node by the link-local address of the gateway',
    from: walled,
    to: linkLocal(node.gatewayMac),
    port: HEALTH_PORT,
  },
];

async function passedConnections(scene: ForgeryScene): Promise<Passed[]> {
  const open = connections(scene).flatMap((one) => {
    const attempts = Array.from({ length: ATTEMPTS }, () => connectUnrouted(one.from, one.to, one.port));
    return attempts.map((fd) => ({ name: one.name, fd }));
  });
  // Past the second after which TCP repeats a packet.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const passed = new Map<string, number>();
  for (const { name, fd } of open) {
    if (isConnected(fd)) passed.set(name, (passed.get(name) ?? 0) + 1);
    libc().close(fd);
  }
  return [...passed].map(([way, count]) => ({ way, at: 'connected', count }));
}

/** TCP_ESTABLISHED in the first byte of struct tcp_info. */
function isConnected(fd: number): boolean {
  const info = new Uint8Array(8);
  const length = Uint8Array.of(8, 0, 0, 0);
  return libc().getsockopt(fd, 6, 11, info, length) === 0 && info[0] === 1;
}

/** Runs in a namespace by its path. */
export const inPath = <T>(netns: string, work: () => T): T => inNetns({ path: netns }, work);
