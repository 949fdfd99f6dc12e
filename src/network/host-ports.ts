import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { addLoopbackRoute } from '../kernel/rtnetlink/loopback-routes.ts';
import { writeSysctls } from '../kernel/sysctl.ts';
import { addressBytes, familyOf, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { be16Port, wordsOfAddress } from '../nft/encoding.ts';
import { keepTables } from '../nft/kept-tables.ts';
import {
  addressFields,
  destinationIsLocal,
  deviceName,
  dnatTo,
  drop,
  type Field,
  hasAny,
  IPS_DST_NAT,
  inSet,
  is,
  masquerade,
  typesOf,
} from '../nft/rule.ts';
import { type ElementGroup, elements, group, type TableSpec } from '../nft/spec.ts';

/** A host port: a port of the node that is forwarded to a port of a pod. */
export interface HostPort {
  /** The node's address; empty: all addresses. */
  readonly hostIP: string;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
  readonly hostPort: number;
  readonly containerPort: number;
}

/** A pod with host ports. */
export interface HostPortPod {
  readonly ips: readonly string[];
  readonly hostPorts: readonly HostPort[];
}

/** The table of each family (`ip` and `ip6`); it exists while any pod has ports. */
export const HOST_PORT_TABLE = 'fairlead-hostports';

const FAMILIES = ['ipv4', 'ipv6'] as const;
/** Returns true if two host ports conflict. */
export function portsClash(one: HostPort, other: HostPort): boolean {
  if (one.protocol !== other.protocol || one.hostPort !== other.hostPort) return false;
  const [a, b] = [everywhere(one.hostIP) ? '' : one.hostIP, everywhere(other.hostIP) ? '' : other.hostIP];
  return a === '' || b === '' || a === b;
}

const everywhere = (hostIP: string) => hostIP === '' || hostIP === '0.0.0.0' || hostIP === '::';

/**
 * Programs the host ports of a node's pods: destination NAT in a separate table, for packets from other hosts, from pods
 * and from the node itself (including 127.0.0.1 and ::1).
 */
export interface HostPorts {
  /** Replaces the ports in the tables by those of these pods, in one transaction per family. */
  write(pods: readonly HostPortPod[]): void;
  /**
   * Deletes the flows of UDP ports, which would otherwise continue to their previous destination while the client sends.
   * Call it after `write`, when the ports of a pod have changed.
   */
  forgetFlows(ports: readonly HostPort[]): Promise<void>;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  close(): void;
}

export interface HostPortsOptions {
  /** The name of the pods' bridge. */
  readonly bridge: string;
  readonly netns?: NetnsRef | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

export function openHostPorts({ bridge, ...options }: HostPortsOptions): HostPorts {
  const { netns } = options;
  const tables = keepTables({ ...options, families: FAMILIES, name: HOST_PORT_TABLE });
  const active = new Set<IPFamily>();
  /** Enables routing of packets to and from loopback addresses on the bridge. */
  const openLoopback = (family: IPFamily) => {
    if (family === 'ipv4') writeSysctls({ [`net/ipv4/conf/${bridge}/route_localnet`]: 1 }, netns);
    else addLoopbackRoute(bridge, netns);
  };
  return {
    write(pods) {
      for (const family of FAMILIES) {
        const spec = renderHostPorts(family, bridge, pods);
        if (spec) {
          openLoopback(family);
          active.add(family);
        } else active.delete(family);
        tables.write(family, spec);
      }
    },
    async check() {
      for (const family of active) openLoopback(family);
      return (await tables.check()).map((family) => `${HOST_PORT_TABLE} (${family})`);
    },
    async forgetFlows(ports) {
      const udp = new Set(ports.filter(({ protocol }) => protocol === 'UDP').map(({ hostPort }) => hostPort));
      if (udp.size === 0) return;
      const conntrack = new ConntrackConnection(netns);
      try {
        for (const family of FAMILIES) {
          for (const destinationPort of udp) {
            await conntrack.delete(
              conntrack.list(family, { protocol: PROTOCOL_NUMBER.UDP, destinationPort }),
            );
          }
        }
      } finally {
        conntrack.close();
      }
    },
    close: () => tables.close(),
  };
}

/** Removes the tables from a node. */
export function removeHostPorts(bridge: string, netns?: NetnsRef): void {
  const ports = openHostPorts({ bridge, netns });
  try {
    ports.write([]);
  } finally {
    ports.close();
  }
}

/** Renders one family's table; null: no pod of the family has ports. */
export function renderHostPorts(
  family: IPFamily,
  bridge: string,
  pods: readonly HostPortPod[],
): TableSpec | null {
  const groups = new Map<string, ElementGroup>();
  for (const pod of pods) {
    const ip = pod.ips.find((one) => familyOf(one) === family);
    const rendered = ip === undefined ? null : renderPod(family, ip, pod.hostPorts);
    if (rendered) groups.set(`pod ${ip}`, rendered);
  }
  if (groups.size === 0) return null;

  const v4 = family === 'ipv4';
  const { source, destination } = addressFields(family);
  const isLoopback = (field: Field) =>
    v4 ? is(field, LOOPBACK_V4, LOOPBACK_V4_MASK) : is(field, LOOPBACK_V6);
  const fromBridge = is('meta.iifname', deviceName(bridge));
  const address = v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address;
  const data = [address, DATA_TYPE.port];
  const key = ['meta.l4proto', 'th.dport'] as const;
  const translate = [
    [dnatTo('addressed', destination, ...key)],
    [destinationIsLocal, dnatTo('ports', ...key)],
  ];
  const { raw, natDestination: destinationNat, natSource: sourceNat } = PRIORITY;
  return {
    family,
    name: HOST_PORT_TABLE,
    sets: [
      { name: 'addressed', key: typesOf(destination, ...key), data },
      { name: 'ports', key: typesOf(...key), data },
      { name: 'hairpin', key: [address, address] },
    ],
    chains: [
      {
        name: 'prerouting',
        base: { type: 'nat', hook: 'prerouting', priority: destinationNat },
        rules: translate,
      },
      { name: 'output', base: { type: 'nat', hook: 'output', priority: destinationNat }, rules: translate },
      {
        name: 'postrouting',
        base: { type: 'nat', hook: 'postrouting', priority: sourceNat },
        rules: [
          // Masqueraded, because a pod could not answer to 127.0.0.1, ::1 or itself.
          [
            is('meta.oifname', deviceName(bridge)),
            isLoopback(source),
            hasAny('ct.status', IPS_DST_NAT),
            masquerade,
          ],
          [inSet('hairpin', source, destination), masquerade],
        ],
      },
      // route_localnet on the bridge would let pods reach listeners on the node's loopback (CVE-2020-8558).
      ...(v4
        ? [
            {
              name: 'guard-loopback',
              base: { type: 'filter', hook: 'prerouting', priority: raw } as const,
              rules: [destination, source].map((end) => [fromBridge, isLoopback(end), drop]),
            },
          ]
        : []),
    ],
    groups,
  };
}

const LOOPBACK_V4 = Uint8Array.of(127, 0, 0, 0);
const LOOPBACK_V4_MASK = Uint8Array.of(255, 0, 0, 0);
const LOOPBACK_V6 = addressBytes('::1') ?? new Uint8Array(16);

/** Renders a pod's ports; null: none of the ports is for this family. */
function renderPod(family: IPFamily, ip: string, hostPorts: readonly HostPort[]): ElementGroup | null {
  const pod = wordsOfAddress(ip, family);
  const list = hostPorts.flatMap(({ hostIP, protocol, hostPort, containerPort }) => {
    const all = everywhere(hostIP);
    // 0.0.0.0 and :: mean all addresses, of both families, as for a listening socket.
    if (!all && familyOf(hostIP) !== family) return [];
    const address = all ? [] : wordsOfAddress(hostIP, family);
    const key = [...address, PROTOCOL_NUMBER[protocol], be16Port(hostPort)];
    const data = [...pod, be16Port(containerPort)];
    return [elements(all ? 'ports' : 'addressed', Uint32Array.from([...key, ...data]))];
  });
  return list.length === 0 ? null : group([...list, elements('hairpin', Uint32Array.from([...pod, ...pod]))]);
}
