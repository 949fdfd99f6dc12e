import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { type Cidr, familyOf, type IPFamily } from '../lib/address.ts';
import { wordsOfAddress } from '../nft/encoding.ts';
import { mergedRanges } from '../nft/ranges.ts';
import {
  accept,
  addressFields,
  counter,
  deviceName,
  drop,
  goto,
  hasAny,
  inSet,
  is,
  isNot,
  jump,
  keepSource,
  notInSet,
  type Rule,
  type Statement,
  setMark,
  snatTo,
  typesOf,
  vmap,
} from '../nft/rule.ts';
import {
  type ChainSpec,
  type ElementGroup,
  elements,
  group,
  rangeElements,
  type SetSpec,
  type TableSpec,
} from '../nft/spec.ts';
import { NEVER_OUTSIDE } from './decide.ts';
import { heldMarkOf, MARK_PREFIX, markOf } from './marks.ts';
import type { SelectingGateway } from './model.ts';

/** The table of each family (`ip` and `ip6`). */
export const GATEWAY_TABLE = 'fairlead-egress-gateway';

/** The chains that count what is dropped. */
export const DROPPING = {
  /** Packets that would have left with another source. */
  leaving: 'refused',
  /** Packets for which the gateway has no address of the family. */
  addressless: 'no-address',
  /** Packets that another node sent here for an address that this node does not have. */
  misdirected: 'misdirected',
} as const;

const NF_CT_INVALID = 1;
const NF_CT_NEW = 8;
/** NF_CT_STATE_UNTRACKED_BIT */
const NF_CT_UNTRACKED = 64;

/** What one node renders. */
export interface GatewayRules {
  /** In the order of precedence, with the sources that may pass this node. */
  readonly gateways: readonly SelectingGateway[];
  readonly cluster: readonly Cidr[];
  /** The networks of all nodes' pods. */
  readonly podNetworks: readonly Cidr[];
  /** By address. */
  readonly numbers: ReadonlyMap<string, number>;
  /** The name of the pods' bridge. */
  readonly bridge: string;
  /** The name of the tunnel to the other nodes; null: plain routes. */
  readonly tunnel: string | null;
  /** The next hops by which packets reach other nodes without a tunnel: those nodes' addresses. */
  readonly nextHops: readonly string[];
}

/**
 * Renders one family's table; null: there is no gateway.
 *
 * - Connections are recognized by their opening packet's source (`ct original`): answers to connections from outside do not match.
 * - The mark says which address the packet has to get. By the mark, a routing table sends it to the node that has the address;
 *   where this node has it, the table of `renderHeld` has changed the mark, and the packet is translated here.
 * - What leaves is checked behind every translation: a packet that a gateway includes leaves translated to its address, or
 *   with the pod's own source to the next hop that is a node. All else is dropped: also while routes or marks are missing,
 *   and packets of connections that were open before the gateway selected the pod.
 */
export function renderGateways(family: IPFamily, rules: GatewayRules): TableSpec | null {
  if (rules.gateways.length === 0) return null;
  const fields = addressFields(family);
  const { originalSource, destination, source } = fields;
  const addresses = [...rules.numbers].filter(([address]) => familyOf(address) === family);
  const isMarked = is('meta.mark', MARK_PREFIX.value, MARK_PREFIX.mask);
  const toOutside = notInSet('cluster', destination);
  const refused: Rule = [goto(DROPPING.leaving)];
  const fromTunnel: Rule[] =
    rules.tunnel === null
      ? []
      : [
          // Another node sends answers from hosts outside, and nothing else from there.
          [
            is('meta.iifname', deviceName(rules.tunnel)),
            notInSet('cluster', source),
            hasAny('ct.state', NF_CT_NEW | NF_CT_INVALID | NF_CT_UNTRACKED),
            ...refused,
          ],
        ];
  const parts = rules.gateways.map((gateway, i) => renderGateway(family, gateway, i, fields));
  const toNode: Rule[] =
    rules.tunnel === null
      ? [[inSet('pods', source), inSet('next-hops', fields.nextHop), accept]]
      : [[inSet('pods', source), is('meta.oifname', deviceName(rules.tunnel)), accept]];
  const chains: ChainSpec[] = [
    { name: DROPPING.leaving, rules: [[counter, drop]] },
    { name: DROPPING.addressless, rules: [[counter, drop]] },
    ...addresses.map(
      ([, number]): ChainSpec => ({
        name: addressChain(number),
        rules: [[setMark(0, markOf(number)), accept]],
      }),
    ),
    { name: 'select', rules: parts.map(({ select }) => select) },
    { name: 'leave', rules: parts.map(({ refuse }) => refuse) },
    {
      name: 'prerouting',
      base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.egressGateway },
      rules: [
        ...fromTunnel,
        [inSet('pods', originalSource), toOutside, jump('select')],
        // A pod of another node that this one does not know yet: it would leave with its own address.
        [
          isNot('meta.iifname', deviceName(rules.bridge)),
          inSet('pod-networks', source),
          toOutside,
          ...refused,
        ],
        // Nothing would translate it.
        [inSet('pods', source), hasAny('ct.state', NF_CT_INVALID | NF_CT_UNTRACKED), toOutside, ...refused],
      ],
    },
    {
      name: 'source',
      base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.egressSource },
      rules: [
        [snatTo('addresses', 'meta.mark')],
        // The node that has the address translates it.
        [isMarked, keepSource],
      ],
    },
    {
      name: 'postrouting',
      base: { type: 'filter', hook: 'postrouting', priority: PRIORITY.egressLeaving },
      rules: [[inSet('pods', originalSource), toOutside, jump('leaving')]],
    },
    {
      name: 'leaving',
      rules: [
        [inSet('translated', 'meta.mark', source), accept],
        ...afterMark(isMarked, toNode),
        [goto('leave')],
      ],
    },
  ];
  const sets: SetSpec[] = [
    { name: 'cluster', key: typesOf(destination), interval: true },
    { name: 'pods', key: typesOf(originalSource) },
    { name: 'pod-networks', key: typesOf(source), interval: true },
    { name: 'addresses', key: [DATA_TYPE.mark], data: typesOf(source) },
    { name: 'translated', key: [DATA_TYPE.mark, ...typesOf(source)] },
    ...(rules.tunnel === null ? [{ name: 'next-hops', key: typesOf(fields.nextHop) }] : []),
    ...parts.flatMap((part) => part.sets),
  ];
  return { family, name: GATEWAY_TABLE, chains, sets, groups: groupsOf(family, rules, addresses) };
}

/** Rules for packets with a mark: those that reach another node pass, all others are dropped. */
const afterMark = (isMarked: Statement, toNode: readonly Rule[]): Rule[] => [
  ...toNode.map((rule) => [isMarked, ...rule]),
  [isMarked, goto(DROPPING.leaving)],
];

const addressChain = (number: number): string => `address-${number}`;
const named = (name: string, i: number): string => `${name}-${i}`;

function renderGateway(
  family: IPFamily,
  { destinations, except }: SelectingGateway,
  i: number,
  { originalSource, destination }: ReturnType<typeof addressFields>,
): { readonly select: Rule; readonly refuse: Rule; readonly sets: SetSpec[] } {
  const isOf = (networks: readonly Cidr[]) => networks.some((one) => one.family === family);
  const networks = { key: typesOf(destination), interval: true };
  const matches: Rule = [
    // Without a network of the family, the empty set matches nothing.
    ...(destinations === null ? [] : [inSet(named('to', i), destination)]),
    ...(isOf(except) ? [notInSet(named('except', i), destination)] : []),
  ];
  return {
    select: [...matches, vmap(named('gateway', i), originalSource)],
    refuse: [...matches, inSet(named('selected', i), originalSource), goto(DROPPING.leaving)],
    sets: [
      ...(destinations === null ? [] : [{ name: named('to', i), ...networks }]),
      ...(isOf(except) ? [{ name: named('except', i), ...networks }] : []),
      { name: named('gateway', i), key: typesOf(originalSource), data: 'verdict' },
      { name: named('selected', i), key: typesOf(originalSource) },
    ],
  };
}

function groupsOf(
  family: IPFamily,
  { gateways, cluster, podNetworks, numbers, tunnel, nextHops }: GatewayRules,
  addresses: readonly (readonly [string, number])[],
): Map<string, ElementGroup> {
  const words = (text: string) => wordsOfAddress(text, family);
  const groups = new Map<string, ElementGroup>([
    [
      'cluster',
      group([
        rangeElements('cluster', mergedRanges([...cluster, ...NEVER_OUTSIDE], family)),
        rangeElements('pod-networks', mergedRanges(podNetworks, family)),
      ]),
    ],
  ]);
  for (const [i, { destinations, except }] of gateways.entries()) {
    const networks = [
      ...(destinations === null ? [] : [rangeElements(named('to', i), mergedRanges(destinations, family))]),
      ...(except.some((one) => one.family === family)
        ? [rangeElements(named('except', i), mergedRanges(except, family))]
        : []),
    ];
    if (networks.length > 0) groups.set(`gateway ${i}`, group(networks));
  }
  for (const [address, number] of addresses) {
    const mark = heldMarkOf(number);
    const element = Uint32Array.from([mark, ...words(address)]);
    groups.set(
      `address ${address}`,
      group([elements('addresses', element), elements('translated', element)]),
    );
  }
  const hops = [...new Set(nextHops.filter((one) => familyOf(one) === family))];
  if (tunnel === null)
    groups.set(
      'next-hops',
      group([elements('next-hops', Uint32Array.from(hops.flatMap(words)), { count: hops.length })]),
    );
  const pods = new Set<string>();
  for (const { sources } of gateways)
    for (const one of sources.keys()) if (familyOf(one) === family) pods.add(one);
  for (const pod of pods) {
    const key = Uint32Array.from(words(pod));
    const own = gateways.flatMap(({ sources }, i) => {
      if (!sources.has(pod)) return [];
      const number = numbers.get(sources.get(pod) ?? '');
      const chain = number === undefined ? DROPPING.addressless : addressChain(number);
      return [
        elements(named('gateway', i), key, { verdict: { goto: chain } }),
        elements(named('selected', i), key),
      ];
    });
    groups.set(`pod ${pod}`, group([elements('pods', key), ...own]));
  }
  return groups;
}

/** The table of each family in which the announcing thread says which addresses this node has. */
export const HELD_TABLE = 'fairlead-egress-held';
export const HELD_MAP = 'held';

/**
 * Renders one family's table of the addresses that this node has: elements of the map that expire, and which the thread that renews
 * the node's Lease refreshes. The node translates only while they are there: not when the agent was killed or hangs.
 */
export function renderHeld(family: IPFamily, bridge: string): TableSpec {
  return {
    family,
    name: HELD_TABLE,
    sets: [{ name: HELD_MAP, key: [DATA_TYPE.mark], data: [DATA_TYPE.mark], dynamic: true }],
    chains: [
      { name: DROPPING.misdirected, rules: [[counter, drop]] },
      { name: 'from-elsewhere', rules: [[isHeldMark, accept], [goto(DROPPING.misdirected)]] },
      {
        name: 'mark',
        rules: [[{ kind: 'mark-from', key: ['meta.mark'], map: HELD_MAP }]],
      },
      {
        name: 'prerouting',
        base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.egressHeld },
        rules: [
          [is('meta.mark', MARK_PREFIX.value, MARK_PREFIX.mask), jump('mark')],
          // Only the node of a pod sends its packets to another one: they never go round in a circle.
          [
            is('meta.mark', MARK_PREFIX.value, MARK_PREFIX.mask),
            isNot('meta.iifname', deviceName(bridge)),
            goto('from-elsewhere'),
          ],
        ],
      },
    ],
    groups: new Map(),
  };
}

/** Matches the marks of addresses that this node has. */
const isHeldMark: Statement = hasAny('meta.mark', 0x00010000);
