import { CHECKED_DSCP } from '../kernel/dscp.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { addressBytes, type Cidr, familyOf, type IPFamily, parseCidr } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { wordsOfAddress } from '../nft/encoding.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import { maskOf, mergedRanges } from '../nft/ranges.ts';
import {
  accept,
  addressFields,
  counter,
  deviceName,
  drop,
  goto,
  hasAny,
  hasDscp,
  IPS_DST_NAT,
  inSet,
  is,
  isNot,
  notInSet,
  type Rule,
  sourceIsElsewhere,
  typesOf,
} from '../nft/rule.ts';
import {
  type ElementGroup,
  elements,
  group,
  rangeElements,
  type SetSpec,
  type TableSpec,
} from '../nft/spec.ts';
import type { PeerNode } from './peer-node.ts';

/** The table of each family (`ip` and `ip6`). */
export const SOURCES_TABLE = 'fairlead-sources';

const FAMILIES = ['ipv4', 'ipv6'] as const;
/** NF_CT_STATE_BIT of a packet that connection tracking cannot read. */
const CT_INVALID = 1;
const ETHERTYPE = { ipv4: Uint8Array.of(0x08, 0x00), ipv6: Uint8Array.of(0x86, 0xdd) } as const;
const INNER: Readonly<Record<IPFamily, string>> = { ipv4: 'inner-ipv4', ipv6: 'inner-ipv6' };
const INNER_SOURCE = { ipv4: 'vxlan.ip.saddr', ipv6: 'vxlan.ip6.saddr' } as const;
/** The prefix of the names of the pods' devices on the node. */
const PORT_PREFIX = 'flp';

/** The tunnel of a node. */
export interface GuardedTunnel {
  readonly port: number;
  readonly device: string;
  /** The address that the other nodes send to. */
  readonly local: string;
}

export interface SourcesState {
  /** The pod networks of this node. */
  readonly podCidrs: readonly Cidr[];
  /** The other nodes. */
  readonly nodes: readonly PeerNode[];
  /** Null: no tunnel. */
  readonly tunnel: GuardedTunnel | null;
  /** Egress gateways, which send answers of hosts outside through the tunnel; null: there is none. */
  readonly gateways?: GatewaySources | null;
}

export interface GatewaySources {
  /** The names of the nodes. */
  readonly nodes: ReadonlySet<string>;
  /** Networks whose addresses are not outside. */
  readonly cluster: readonly Cidr[];
}

/** Drops packets whose source cannot have come by their device, and packets into the tunnel that no node sent. */
export interface NodeSources {
  /** Programs the nodes, unless they are already programmed. */
  write(state: SourcesState): void;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  close(): void;
}

export interface NodeSourcesOptions {
  /** The name of the pods' bridge. */
  readonly bridge: string;
  readonly netns?: NetnsRef | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

export function openNodeSources({ bridge, ...options }: NodeSourcesOptions): NodeSources {
  const tables = openTables(options);
  return {
    write(state) {
      for (const family of FAMILIES) tables.write(family, renderSources(family, bridge, state));
    },
    check: async () => (await tables.check()).map((family) => `${SOURCES_TABLE} (${family})`),
    close: () => tables.close(),
  };
}

/** Removes the tables from a node. */
export function removeNodeSources(netns?: NetnsRef): void {
  const tables = openTables({ netns });
  try {
    for (const family of FAMILIES) tables.write(family, null);
  } finally {
    tables.close();
  }
}

const openTables = (options: Omit<NodeSourcesOptions, 'bridge'>): KeptTables =>
  keepTables({ ...options, families: FAMILIES, name: SOURCES_TABLE });

/**
 * Renders one family's table; null for a node without pods and tunnel of the family.
 *
 * - A packet from a port of the bridge itself was not switched: the kernel hands it to the node if its MAC is a reserved group.
 * - The source of a packet from elsewhere is not a pod of this node.
 * - Of the tunnel's packets, the outer source is a node, the outer destination this node's address, and the inner source
 *   a pod or an address of that node; from an egress gateway also a host outside, of which the table of src/egress then accepts
 *   answers only. Pods send none, to no node, nor does a Service whose endpoint is a node's tunnel.
 */
export function renderSources(family: IPFamily, bridge: string, state: SourcesState): TableSpec | null {
  const own = state.podCidrs.filter((cidr) => cidr.family === family);
  const tunnel = state.tunnel && familyOf(state.tunnel.local) === family ? state.tunnel : null;
  if (own.length === 0 && !tunnel) return null;
  const { source, destination } = addressFields(family);
  const refuse: Rule = [counter, drop];
  const fromBridge = is('meta.iifname', deviceName(bridge));
  const isTunnelled: Rule = tunnel
    ? [is('meta.l4proto', PROTOCOL_NUMBER.UDP), is('th.dport', portBytes(tunnel.port))]
    : [];
  const toNodes: Rule = tunnel
    ? [isNot('meta.oifname', deviceName(bridge)), isNot('meta.oifname', deviceName(tunnel.device))]
    : [];
  const local = (tunnel && addressBytes(tunnel.local)) ?? new Uint8Array(0);
  const groups = new Map<string, ElementGroup>();
  const gateways = tunnel && state.gateways ? renderGatewaySources(family, state, state.gateways) : null;
  if (gateways) groups.set(GATEWAYS, gateways.group);
  if (tunnel) for (const node of state.nodes) groups.set(node.name, renderNode(family, node));
  return {
    family,
    name: SOURCES_TABLE,
    sets: [
      ...(tunnel
        ? FAMILIES.map((inner) => ({
            name: INNER[inner],
            key: [...typesOf(source), ADDRESS_TYPE[inner]],
            interval: true,
          }))
        : []),
      ...(gateways?.sets ?? []),
    ],
    chains: [
      {
        name: 'prerouting',
        base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.raw },
        rules: [
          [is('meta.iifname', deviceName(PORT_PREFIX, PORT_PREFIX.length)), ...refuse],
          ...own.map(
            (cidr): Rule => [
              is(source, cidr.bytes, maskOf(cidr)),
              isNot('meta.iifname', deviceName(bridge)),
              isNot('meta.iifname', deviceName('lo')),
              ...refuse,
            ],
          ),
        ],
      },
      ...(tunnel
        ? [
            {
              name: 'input',
              base: { type: 'filter', hook: 'input', priority: PRIORITY.raw } as const,
              rules: [[...isTunnelled, goto('tunnel')]],
            },
            {
              name: 'tunnel',
              rules: [
                [fromBridge, ...refuse],
                // Connection tracking also makes the kernel assemble fragments before this chain.
                [hasAny('ct.state', CT_INVALID), ...refuse],
                [isNot(destination, local), ...refuse],
                ...FAMILIES.map((inner) => [
                  is('vxlan.ether.type', ETHERTYPE[inner]),
                  inSet(INNER[inner], source, INNER_SOURCE[inner]),
                  accept,
                ]),
                ...(gateways?.rules ?? []),
                refuse,
              ],
            },
            {
              // To a node, a pod's packet could be masqueraded as one of this node's.
              name: 'forward',
              base: { type: 'filter', hook: 'forward', priority: PRIORITY.raw } as const,
              rules: [
                [fromBridge, ...isTunnelled, ...toNodes, ...refuse],
                [...isTunnelled, hasAny('ct.status', IPS_DST_NAT), ...toNodes, ...refuse],
              ],
            },
            {
              // A Service whose endpoint is a node's tunnel: of a process that proxies, and of ip_vs.
              name: 'output',
              base: { type: 'filter', hook: 'output', priority: PRIORITY.raw } as const,
              rules: [
                [...isTunnelled, hasDscp(CHECKED_DSCP, family), ...toNodes, ...refuse],
                // Comparing is faster than a lookup of the address, which packets of the tunnel itself need not have.
                [...isTunnelled, isNot(source, local), sourceIsElsewhere, ...toNodes, ...refuse],
              ],
            },
          ]
        : []),
    ],
    groups,
  };
}

const ADDRESS_TYPE = { ipv4: DATA_TYPE.ipv4Address, ipv6: DATA_TYPE.ipv6Address } as const;
const GATEWAYS = 'egress-gateways';
const CLUSTER = { ipv4: 'cluster-ipv4', ipv6: 'cluster-ipv6' } as const;

function renderGatewaySources(
  family: IPFamily,
  { nodes }: SourcesState,
  { nodes: names, cluster }: GatewaySources,
): { readonly sets: SetSpec[]; readonly rules: Rule[]; readonly group: ElementGroup } {
  const { source } = addressFields(family);
  const outer = nodes
    .filter(({ name }) => names.has(name))
    .flatMap(({ addresses }) => addresses.filter((one) => familyOf(one) === family));
  const words = Uint32Array.from([...new Set(outer)].flatMap((one) => [...wordsOfAddress(one, family)]));
  return {
    sets: [
      { name: GATEWAYS, key: typesOf(source) },
      ...FAMILIES.map((inner) => ({ name: CLUSTER[inner], key: [ADDRESS_TYPE[inner]], interval: true })),
    ],
    rules: FAMILIES.map((inner) => [
      is('vxlan.ether.type', ETHERTYPE[inner]),
      inSet(GATEWAYS, source),
      notInSet(CLUSTER[inner], INNER_SOURCE[inner]),
      accept,
    ]),
    group: group([
      elements(GATEWAYS, words, { count: new Set(outer).size }),
      ...FAMILIES.map((inner) => rangeElements(CLUSTER[inner], mergedRanges(cluster, inner))),
    ]),
  };
}

/** Returns the inner sources that a node may send: its pods and its own addresses. */
function renderNode(family: IPFamily, { addresses, podCidrs }: PeerNode): ElementGroup {
  const outer = addresses.filter((address) => familyOf(address) === family);
  const networks = [...podCidrs, ...addresses.map((one) => `${one}/${one.includes(':') ? 128 : 32}`)];
  const cidrs = networks.flatMap((text) => parseCidr(text) ?? []);
  return group(
    outer.flatMap((address) =>
      FAMILIES.flatMap((inner) => {
        const ranges = mergedRanges(cidrs, inner);
        const head = Uint32Array.from(wordsOfAddress(address, family));
        return ranges.length === 0 ? [] : [rangeElements(INNER[inner], ranges, head)];
      }),
    ),
  );
}

const portBytes = (port: number): Uint8Array => Uint8Array.of(port >> 8, port & 0xff);
