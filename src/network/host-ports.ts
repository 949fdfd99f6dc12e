import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import type { Expression, NftBatch } from '../kernel/nftables/batch.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { DATA_TYPE, NFPROTO } from '../kernel/nftables/constants.ts';
import {
  BASE,
  bitwise,
  CMP,
  CT,
  compare,
  ct,
  destinationIsLocal,
  dnat,
  fromMap,
  inSet,
  META,
  masquerade,
  meta,
  payload,
  verdict,
} from '../kernel/nftables/expressions.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { addRoute, ROUTE_PROTOCOL } from '../kernel/rtnetlink/routes.ts';
import { writeSysctls } from '../kernel/sysctl.ts';
import { addressBytes, familyOf, type IPFamily } from '../lib/address.ts';
import { hasCode } from '../lib/errors.ts';

/** A port of the node that leads to a port of a pod. */
export interface HostPort {
  /** The node's address that it is for; empty: all of them. */
  readonly hostIP: string;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
  readonly hostPort: number;
  readonly containerPort: number;
}

/** A pod with ports of the node. */
export interface HostPortPod {
  readonly ips: readonly string[];
  readonly hostPorts: readonly HostPort[];
}

/** The table of each family (`ip` and `ip6`); there is one while some pod has ports. */
export const HOST_PORT_TABLE = 'fairlead-hostports';

const FAMILIES = ['ipv4', 'ipv6'] as const;
const PROTOCOLS = { TCP: 6, UDP: 17, SCTP: 132 } as const;
const PRIORITY = { raw: -300, destinationNat: -100, sourceNat: 100 } as const;
const IPS_DST_NAT = 0x20;
/** RT_TABLE_LOCAL. */
const LOCAL_TABLE = 255;
/** Behind the kernel's own route (metric 0); each device has one of its own, since equal ones would be joined. */
const LOOPBACK_METRIC = 0x464c0000;

/** Whether two ports of a node cannot both be given out. */
export function portsClash(one: HostPort, other: HostPort): boolean {
  if (one.protocol !== other.protocol || one.hostPort !== other.hostPort) return false;
  const [a, b] = [everywhere(one.hostIP) ? '' : one.hostIP, everywhere(other.hostIP) ? '' : other.hostIP];
  return a === '' || b === '' || a === b;
}

const everywhere = (hostIP: string) => hostIP === '' || hostIP === '0.0.0.0' || hostIP === '::';

/**
 * Programs the ports of a node that lead to its pods: destination NAT in a table of its own, for packets from
 * elsewhere, from pods and from the node itself (127.0.0.1 and ::1 too).
 */
export interface HostPorts {
  /** Makes the tables hold the ports of these pods and no others, in one transaction a family. */
  write(pods: readonly HostPortPod[]): void;
  /**
   * Forgets the flows of UDP ports, which would go on where they went before for as long as the client sends.
   * Called after `write`, when a pod has got or lost them.
   */
  forgetFlows(ports: readonly HostPort[]): Promise<void>;
  close(): void;
}

export function openHostPorts(bridge: string, netns?: NetnsRef): HostPorts {
  const connection = new NftConnection(netns);
  return {
    write(pods) {
      for (const family of FAMILIES) {
        const entries = pods.flatMap((pod) => entriesOf(pod, family));
        const batch = connection.batch(NFPROTO[family]);
        // Adding what may be there makes deleting it sure to work.
        if (
          entries.length > 0 ||
          connection.tables(NFPROTO[family]).some(({ name }) => name === HOST_PORT_TABLE)
        ) {
          batch.addTable(HOST_PORT_TABLE);
          batch.deleteTable(HOST_PORT_TABLE);
        }
        if (entries.length > 0) {
          if (family === 'ipv4') writeSysctls({ [`net/ipv4/conf/${bridge}/route_localnet`]: 1 }, netns);
          else ensureLoopbackRoute(bridge, netns);
          writeTable(batch, family, bridge, entries);
        }
        connection.commitSync(batch);
      }
    },
    async forgetFlows(ports) {
      const udp = new Set(ports.filter(({ protocol }) => protocol === 'UDP').map(({ hostPort }) => hostPort));
      if (udp.size === 0) return;
      const conntrack = new ConntrackConnection(netns);
      try {
        for (const family of FAMILIES) {
          for (const destinationPort of udp) {
            await conntrack.delete(conntrack.list(family, { protocol: PROTOCOLS.UDP, destinationPort }));
          }
        }
      } finally {
        conntrack.close();
      }
    },
    close: () => connection.close(),
  };
}

/** Removes the tables from a node. */
export function removeHostPorts(bridge: string, netns?: NetnsRef): void {
  const ports = openHostPorts(bridge, netns);
  try {
    ports.write([]);
  } finally {
    ports.close();
  }
}

/**
 * IPv6's counterpart of route_localnet: a pod's answer comes in by the bridge, and when its destination is ::1 again the
 * kernel wants a route to it on that very device (rt6_need_strict in net/ipv6/route.c). Nothing has to be guarded:
 * packets that claim ::1 on a wire are dropped before netfilter (ip6_rcv_core). The same route as node ports have.
 */
function ensureLoopbackRoute(bridge: string, netns: NetnsRef | undefined): void {
  using socket = openRouteSocket(netns);
  const device = getLink(socket, bridge).index;
  const protocol = ROUTE_PROTOCOL.fairlead;
  const metric = LOOPBACK_METRIC + device;
  try {
    addRoute(socket, { destination: '::1/128', device, type: 'local', table: LOCAL_TABLE, metric, protocol });
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
}

interface Entry {
  /** Words of the address that the port is for; null: every one of the node. */
  readonly address: readonly number[] | null;
  readonly protocol: number;
  readonly hostPort: number;
  readonly pod: readonly number[];
  readonly containerPort: number;
}

function entriesOf(pod: HostPortPod, family: IPFamily): Entry[] {
  const ip = pod.ips.find((one) => familyOf(one) === family);
  if (ip === undefined) return [];
  return pod.hostPorts.flatMap(({ hostIP, protocol, hostPort, containerPort }) => {
    const all = everywhere(hostIP);
    // 0.0.0.0 and :: are all addresses, of both families, as a listening socket's are.
    if (!all && familyOf(hostIP) !== family) return [];
    return [
      {
        address: all ? null : wordsOf(hostIP),
        protocol: PROTOCOLS[protocol],
        hostPort,
        pod: wordsOf(ip),
        containerPort,
      },
    ];
  });
}

/** An address as it stands in registers: 32-bit words in the host's (little) order over bytes in the network's. */
function wordsOf(address: string): number[] {
  const bytes = Uint8Array.from(addressBytes(address) ?? []);
  return [...new Uint32Array(bytes.buffer)];
}

const portWord = (port: number) => ((port & 0xff) << 8) | (port >> 8);

function writeTable(batch: NftBatch, family: IPFamily, bridge: string, entries: readonly Entry[]): void {
  const v4 = family === 'ipv4';
  const bytes = v4 ? 4 : 16;
  const words = bytes / 4;
  const address = v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address;
  const source = (to: number) => payload(BASE.network, v4 ? 12 : 8, bytes, to);
  const destination = (to: number) => payload(BASE.network, v4 ? 16 : 24, bytes, to);
  const port = (to: number) => payload(BASE.transport, 2, 2, to);
  const data = 8;
  const table = HOST_PORT_TABLE;
  const target = [address, DATA_TYPE.port];

  batch.addTable(table);
  batch.addSet(table, {
    name: 'addressed',
    key: [address, DATA_TYPE.protocol, DATA_TYPE.port],
    data: target,
  });
  batch.addSet(table, { name: 'ports', key: [DATA_TYPE.protocol, DATA_TYPE.port], data: target });
  batch.addSet(table, { name: 'hairpin', key: [address, address] });
  const toPod = dnat(NFPROTO[family], data, data + words);
  const translate: Expression[][] = [
    [destination(0), meta(META.protocol, words), port(words + 1), fromMap('addressed', 0, data), toPod],
    [...destinationIsLocal, meta(META.protocol, 0), port(1), fromMap('ports', 0, data), toPod],
  ];
  const isLoopback = (load: (to: number) => Expression): Expression[] => [
    load(0),
    ...(v4 ? [bitwise(0, 0, Uint8Array.of(255, 0, 0, 0), new Uint8Array(4))] : []),
    compare(0, CMP.equal, v4 ? Uint8Array.of(127, 0, 0, 0) : Uint8Array.of(...Array(15).fill(0), 1)),
  ];
  const wasTranslated: Expression[] = [
    ct(CT.status, 0),
    bitwise(0, 0, Uint8Array.of(IPS_DST_NAT, 0, 0, 0), new Uint8Array(4)),
    compare(0, CMP.notEqual, new Uint8Array(4)),
  ];
  const fromBridge: Expression[] = [meta(META.inInterface, 0), compare(0, CMP.equal, deviceName(bridge))];
  const toBridge: Expression[] = [meta(META.outInterface, 0), compare(0, CMP.equal, deviceName(bridge))];

  const { raw, destinationNat, sourceNat } = PRIORITY;
  const chain = (name: string, base: Parameters<NftBatch['addChain']>[2], rules: readonly Expression[][]) => {
    batch.addChain(table, name, base);
    for (const rule of rules) batch.addRule(table, name, rule);
  };
  chain('prerouting', { type: 'nat', hook: 'prerouting', priority: destinationNat }, translate);
  chain('output', { type: 'nat', hook: 'output', priority: destinationNat }, translate);
  chain('postrouting', { type: 'nat', hook: 'postrouting', priority: sourceNat }, [
    // A pod could not answer to 127.0.0.1 or ::1, nor to itself.
    [...toBridge, ...isLoopback(source), ...wasTranslated, masquerade],
    [source(0), destination(words), inSet('hairpin', 0), masquerade],
  ]);
  if (v4) {
    // route_localnet on the bridge would let pods reach what listens on the node's loopback (CVE-2020-8558).
    chain('guard-loopback', { type: 'filter', hook: 'prerouting', priority: raw }, [
      [...fromBridge, ...isLoopback(destination), verdict('drop')],
      [...fromBridge, ...isLoopback(source), verdict('drop')],
    ]);
  }
  for (const { address: at, protocol, hostPort, pod, containerPort } of entries) {
    const key = [...(at ?? []), protocol, portWord(hostPort)];
    batch.addElement(table, at ? 'addressed' : 'ports', { key, data: [...pod, portWord(containerPort)] });
  }
  const pods = new Map(entries.map(({ pod }) => [pod.join(), pod]));
  for (const pod of pods.values()) batch.addElement(table, 'hairpin', { key: [...pod, ...pod] });
}

/** A device's name as META.inInterface loads it. */
function deviceName(name: string): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set(new TextEncoder().encode(name));
  return bytes;
}
