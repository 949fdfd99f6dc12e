import { CHECKED_DSCP } from '../kernel/dscp.ts';
import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import type { IPFamily } from '../lib/address.ts';
import { familyOf } from '../lib/address.ts';
import { be16Port, wordsOfAddress } from '../nft/encoding.ts';
import {
  accept,
  addressFields,
  counter,
  drop,
  type Field,
  goto,
  hasAny,
  hasDscp,
  IPS_DST_NAT,
  inSet,
  is,
  jump,
  type Rule,
  type Statement,
  sourceIsLocal,
  typesOf,
  vmap,
} from '../nft/rule.ts';
import {
  type ChainSpec,
  type ElementGroup,
  type Elements,
  elements,
  type Fragment,
  group,
  rangeElements,
  type SetSpec,
  type TableSpec,
} from '../nft/spec.ts';
import { blockRanges } from './address-block.ts';
import {
  type AddressBlock,
  DIRECTIONS,
  type Direction,
  type Policy,
  type PolicyPeer,
  type PolicyPort,
  type PolicyRule,
  type Tier,
} from './model.ts';
import { hashOf } from './policy-reader.ts';
import { portKey } from './policy-references.ts';
import type { PolicyTable } from './policy-table.ts';

/** The table of each family (`ip` and `ip6`); it exists while a pod of the node is isolated. */
export const POLICY_TABLE = 'fairlead-policy';

const FILTER = 0;
/**
 * ip_vs takes packets to Services off the input hook at 98 and 99 (ip_vs_core.c); the input chain has a
 * later priority.
 */
const BEHIND_IPVS = 110;
/** NF_CT_STATE_BIT: established, related. */
const KNOWN_FLOW = 2 | 4;
/** Neighbour discovery and multicast listeners are not tracked (nf_conntrack_proto_icmpv6.c). */
const UNTRACKED = 64;
const ICMPV6 = 58;
/** Names of chains and sets have at most 255 bytes (NFT_NAME_MAXLEN). */
const MAX_LABEL = 200;

export interface PolicyRenderOptions {
  readonly family: IPFamily;
  /**
   * Returns the addresses of the other nodes if packets to Services go to proxies on the nodes, which check
   * the policies themselves (userspace mode). Null (default): there are no proxies; a rendering does not
   * expect this to change.
   */
  readonly proxies?: (() => readonly string[] | null) | undefined;
}

/**
 * Renders the policies that one node enforces, for one family. Fragments are kept, so that equal ones are
 * the same object.
 */
export interface PolicyRendering {
  /** Renders the table; null: no pod of this node with an address of the family is isolated. */
  table(): TableSpec | null;
  /** Renders the elements of a pod; null: none. */
  pod(key: string): ElementGroup | null;
  /** Renders the elements of a policy, which its chains need; null: it isolates no pod of this node. */
  policy(key: string): ElementGroup | null;
  /** Renders the elements of the other nodes' proxies; null: none. */
  proxies(): ElementGroup | null;
  /** Drops all fragments; the whole table has to be written next. */
  reset(): void;
}

export const podOwner = (key: string): string => `pod ${key}`;
export const policyOwner = (key: string): string => `policy ${key}`;

const MAP_OF: Readonly<Record<Direction, string>> = {
  ingress: 'isolated-ingress',
  egress: 'isolated-egress',
};

/** Addresses of the nodes whose proxies check the policies for their clients before they connect. */
const PROXIES = 'proxies';
export const PROXIES_OWNER = 'proxies';
/** Chains that count dropped packets. */
export const DENIED: Readonly<Record<Direction, string>> = {
  ingress: 'denied-ingress',
  egress: 'denied-egress',
};
/** Sets of this node's pods, which count packets that no rule of the pods' NetworkPolicies allows. */
export const UNMATCHED: Readonly<Record<Direction, string>> = {
  ingress: 'unmatched-ingress',
  egress: 'unmatched-egress',
};
/** Pairs of each isolated pod's address with itself. */
const ITSELF = 'itself';

export function createPolicyRendering(
  policies: PolicyTable,
  { family, proxies = () => null }: PolicyRenderOptions,
): PolicyRendering {
  const { source, destination } = addressFields(family);
  const key: readonly Field[] = [destination, 'meta.l4proto', 'th.dport'];
  const isProxied = proxies() !== null;
  const fragments = new Map<string, Fragment>();

  /** Returns one object per name: fragments with the same name are identical. */
  const fragment = (name: string, make: () => Pick<Fragment, 'chains' | 'sets'>): Fragment => {
    const known = fragments.get(name);
    if (known) return known;
    const made = { ...make(), rules: [] };
    fragments.set(name, made);
    return made;
  };
  /** The sets of groups, which contain most elements. */
  const groupSets = new Map<string, Fragment>();
  const groupFragment = (id: string): Fragment => {
    const known = groupSets.get(id);
    if (known) return known;
    const made = setFragment(groupSet(id));
    groupSets.set(id, made);
    return made;
  };
  const setFragment = (set: SetSpec) => fragment(`set ${set.name}`, () => ({ chains: [], sets: [set] }));
  const groupSet = (id: string): SetSpec => ({ name: `pods-${id}`, key: typesOf(source) });
  const portSet = (port: string): SetSpec => ({ name: `port-${port}`, key: typesOf(...key) });
  const blockSet = (rule: string): SetSpec => ({
    name: `${rule}-blocks`,
    key: typesOf(source),
    interval: true,
  });
  const rangeSet = (rule: string): SetSpec => ({
    name: `${rule}-ports`,
    key: [DATA_TYPE.protocol, DATA_TYPE.port],
    interval: true,
  });

  /** The chains and sets of a policy; a policy of the whole cluster has its rules in the chains of its pods. */
  const policyFragment = (policy: Policy): Fragment =>
    fragment(`policy ${policy.key} ${policy.hash}`, () => {
      const sets: SetSpec[] = [];
      const chains = DIRECTIONS.flatMap((direction): ChainSpec[] => {
        const rules = policy[direction];
        if (!rules) return [];
        for (const [i, rule] of rules.entries()) sets.push(...setsOf(rule, ruleName(policy, direction, i)));
        if (policy.tier === 'NetworkPolicy') {
          return [{ name: chainOf(policy, direction), rules: rulesOf(policy, direction, []) }];
        }
        if (!canDeny(policy, direction)) return [];
        const counted = deniedSet(direction, policy);
        sets.push(counted);
        return [{ name: deniedChain(policy, direction), rules: countAndDrop(counted, direction) }];
      });
      return { chains, sets };
    });

  /** Counts a packet by the address of the isolated pod, and drops it. */
  const countAndDrop = ({ name }: SetSpec, direction: Direction): Rule[] => [
    [inSet(name, direction === 'ingress' ? destination : source), goto(DENIED[direction])],
    [goto(DENIED[direction])],
  ];
  const deniedSet = (direction: Direction, policy: Policy | null): SetSpec => ({
    name: policy ? deniedChain(policy, direction) : UNMATCHED[direction],
    key: typesOf(source),
    counted: true,
  });

  /** `pass`: what follows a rule with the action Pass. */
  function rulesOf(policy: Policy, direction: Direction, pass: Rule): Rule[] {
    return (policy[direction] ?? []).flatMap((rule, i): Rule[] => {
      const name = ruleName(policy, direction, i);
      const peers = rule.peers ? peerMatches(rule.peers, direction, name) : [[]];
      const ports = rule.ports ? portMatches(rule.ports, name) : [[]];
      const end: Rule = {
        Accept: [acceptAt(direction)],
        Deny: [goto(deniedChain(policy, direction))],
        Pass: pass,
      }[rule.action];
      // Comparing a port is faster than looking up an address.
      return peers.flatMap((peer) => ports.map((port): Rule => [...port, ...peer, ...end]));
    });
  }

  function setsOf({ peers, ports }: PolicyRule, name: string): SetSpec[] {
    return [
      ...(peers ?? []).flatMap((peer) => (peer.kind === 'pods' ? [groupSet(peer.group.id)] : [])),
      ...(blocksOf(peers).length > 0 ? [blockSet(name)] : []),
      ...(ports && needsRangeSet(ports) ? [rangeSet(name)] : []),
      ...(ports ?? []).flatMap((port) =>
        port.kind === 'name' ? [portSet(portKey(port.name, port.protocol))] : [],
      ),
    ];
  }

  /** Returns alternatives for a packet's other end; one of them must match. */
  function peerMatches(peers: readonly PolicyPeer[], direction: Direction, name: string): Statement[][] {
    const field = direction === 'ingress' ? source : destination;
    const ids = new Set(peers.flatMap((peer) => (peer.kind === 'pods' ? [peer.group.id] : [])));
    return [
      ...[...ids].map((id) => [inSet(groupSet(id).name, field)]),
      ...(blocksOf(peers).length > 0 ? [[inSet(blockSet(name).name, field)]] : []),
    ];
  }

  function portMatches(ports: readonly PolicyPort[], name: string): Statement[][] {
    const names = new Set(
      ports.flatMap((port) => (port.kind === 'name' ? [portKey(port.name, port.protocol)] : [])),
    );
    const [first] = ranges(ports);
    return [
      ...(needsRangeSet(ports)
        ? [[inSet(rangeSet(name).name, 'meta.l4proto', 'th.dport')]]
        : first
          ? [[is('meta.l4proto', PROTOCOL_NUMBER[first.protocol]), is('th.dport', portBytes(first.first))]]
          : []),
      ...[...names].map((port) => [inSet(portSet(port).name, ...key)]),
    ];
  }

  /**
   * Returns the chain of pods to which these policies apply, in the order of evaluation. NetworkPolicies are chains of
   * their own, which return. The rules of the other tiers are in the chain itself, because Pass has to skip the rest of
   * its tier, and a `goto` in a chain that was jumped to would return to this one.
   */
  const isolation = (direction: Direction, list: readonly Policy[]): { name: string; needs: Fragment[] } => {
    const name = `${direction}-of-${hashOf(list.map((policy) => [policy.key, policy.hash]))}`;
    const ofTier = (tier: Tier) => list.filter((policy) => policy.tier === tier);
    const [admin, own, baseline] = [ofTier('Admin'), ofTier('NetworkPolicy'), ofTier('Baseline')];
    const always: Rule[] = [
      [inSet(ITSELF, source, destination), accept],
      ...(direction === 'ingress' && isProxied
        ? [[hasDscp(CHECKED_DSCP, family), inSet(PROXIES, source), accept]]
        : []),
    ];
    const accepted: Rule = [acceptAt(direction)];
    const unmatched = deniedSet(direction, null);
    const isolated: Rule[] = own.map((policy) => [jump(chainOf(policy, direction))]);
    const denied = countAndDrop(unmatched, direction);
    const isOfCluster = admin.length + baseline.length > 0;
    const rest = `${name}-rest`;
    const chains = (): ChainSpec[] =>
      isOfCluster
        ? [
            {
              name,
              rules: [
                ...always,
                ...admin.flatMap((policy) => rulesOf(policy, direction, [goto(rest)])),
                [goto(rest)],
              ],
            },
            {
              name: rest,
              rules:
                own.length > 0
                  ? [...isolated, ...denied]
                  : [...baseline.flatMap((policy) => rulesOf(policy, direction, accepted)), accepted],
            },
          ]
        : // Last: packets that policies allow need no lookup.
          [{ name, rules: [...isolated, ...always, ...denied] }];
    const made = fragment(`chain ${name}`, () => ({
      chains: chains(),
      sets: own.length > 0 ? [unmatched] : [],
    }));
    return { name, needs: [...list.map(policyFragment), made] };
  };

  const rendering: PolicyRendering = {
    table() {
      if (!policies.isolatesPods(family)) return null;
      const { pods, policies: active } = policies.all();
      const groups = new Map<string, ElementGroup>();
      const put = (owner: string, rendered: ElementGroup | null) => rendered && groups.set(owner, rendered);
      for (const one of active) put(policyOwner(one), rendering.policy(one));
      for (const one of pods) put(podOwner(one), rendering.pod(one));
      put(PROXIES_OWNER, rendering.proxies());
      return {
        family,
        name: POLICY_TABLE,
        chains: baseChains(family, isProxied),
        sets: [
          { name: MAP_OF.egress, key: typesOf(source), data: 'verdict' },
          { name: MAP_OF.ingress, key: typesOf(destination), data: 'verdict' },
          { name: ITSELF, key: typesOf(source, destination) },
          ...(isProxied ? [{ name: PROXIES, key: typesOf(source) }] : []),
        ],
        groups,
      };
    },
    pod(podKey) {
      const programmed = policies.programmed(podKey);
      if (!programmed) return null;
      const { pod, groups, isolatedBy } = programmed;
      const addresses = programmed.addresses
        .filter((address) => familyOf(address) === family)
        .map((address) => Uint32Array.from(wordsOfAddress(address, family)));
      // Most elements of a table are made here: lists of the final length are not copied while they grow.
      const needs = addresses.length === 0 ? [] : groups.map(groupFragment);
      const members = needs.map(({ sets }) => sets[0]?.name ?? '');
      const list = addresses.flatMap((own) => members.map((set) => elements(set, own)));
      // Several containers of a pod may use a port name, for different ports or the same.
      const named = new Map(
        pod.ports
          .filter(({ name, protocol }) => policies.usesPortName(portKey(name, protocol)))
          .map((port) => [`${portKey(port.name, port.protocol)} ${port.port}`, port]),
      );
      for (const own of addresses) {
        for (const { name, protocol, port } of named.values()) {
          const set = portSet(portKey(name, protocol));
          needs.push(setFragment(set));
          const element = Uint32Array.from([...own, PROTOCOL_NUMBER[protocol], be16Port(port)]);
          list.push(elements(set.name, element));
        }
        for (const direction of DIRECTIONS) {
          const isolating = isolatedBy[direction].flatMap((one) => policies.activePolicy(one) ?? []);
          if (isolating.length === 0) continue;
          const chain = isolation(direction, isolating);
          needs.push(...chain.needs);
          for (const policy of isolating.filter((one) => canDeny(one, direction)))
            list.push(elements(deniedSet(direction, policy).name, own));
          if (isolating.some(({ tier }) => tier === 'NetworkPolicy'))
            list.push(elements(UNMATCHED[direction], own));
          list.push(
            elements(MAP_OF[direction], own, {
              verdict: { goto: chain.name },
              comment: podKey.slice(0, 120),
            }),
          );
        }
        if (isolatedBy.ingress.length + isolatedBy.egress.length > 0)
          list.push(elements(ITSELF, Uint32Array.from([...own, ...own])));
      }
      return list.length === 0 ? null : group(list, needs);
    },
    policy(policyKey) {
      const policy = policies.activePolicy(policyKey);
      if (!policy) return null;
      const list = DIRECTIONS.flatMap((direction) =>
        (policy[direction] ?? []).flatMap((rule, i) => {
          const name = ruleName(policy, direction, i);
          const blocks = blockRanges(blocksOf(rule.peers), family);
          return [
            ...(blocks.length > 0 ? [rangeElements(blockSet(name).name, blocks)] : []),
            ...(rule.ports && needsRangeSet(rule.ports)
              ? [portElements(rangeSet(name).name, rule.ports)]
              : []),
          ];
        }),
      );
      return group(list, [policyFragment(policy)]);
    },
    proxies() {
      const own = [...new Set(proxies())].filter((address) => familyOf(address) === family);
      const words = own.flatMap((address) => [...wordsOfAddress(address, family)]);
      return own.length === 0
        ? null
        : group([elements(PROXIES, Uint32Array.from(words), { count: own.length })]);
    },
    reset() {
      fragments.clear();
      groupSets.clear();
    },
  };
  return rendering;
}

/**
 * Every packet that a pod of the node sends or receives passes one of the three hooks with the pod's
 * address.
 */
function baseChains(family: IPFamily, proxied: boolean): ChainSpec[] {
  const { source, destination } = addressFields(family);
  const known: Rule = [hasAny('ct.state', KNOWN_FLOW), accept];
  const base = (hook: 'forward' | 'input' | 'output', priority: number) =>
    ({ type: 'filter', hook, priority }) as const;
  // Packets that no policy affects cost two lookups; the rest of the rules is in the chains that these lead
  // to.
  const isolation: Rule[] = [[vmap(MAP_OF.egress, source)], [vmap(MAP_OF.ingress, destination)]];
  return [
    { name: 'forward', base: base('forward', FILTER), rules: [known, ...isolation] },
    // Packets to processes of the node. Only a pod's egress is decided here.
    {
      name: 'input',
      base: base('input', BEHIND_IPVS),
      rules: [
        known,
        ...(family === 'ipv6' ? [[is('meta.l4proto', ICMPV6), hasAny('ct.state', UNTRACKED), accept]] : []),
        ...(proxied ? [[hasAny('ct.status', IPS_DST_NAT), accept]] : []),
        ...isolation,
      ],
    },
    // A node reaches its pods (probes); ip_vs sends packets of other sources from here.
    {
      name: 'output',
      base: base('output', FILTER),
      rules: [known, [sourceIsLocal, accept], ...isolation],
    },
    // After a rule that allows packets sent by pods.
    { name: 'ingress', rules: [[vmap(MAP_OF.ingress, destination)], [accept]] },
    ...DIRECTIONS.map((direction) => ({ name: DENIED[direction], rules: [[counter, drop]] })),
  ];
}

/** A packet that a pod's own policies accept on its way out still has to pass those of its receiver. */
const acceptAt = (direction: Direction): Statement => (direction === 'egress' ? goto('ingress') : accept);

/** Returns true for a policy of the whole cluster with a rule that denies. */
export const canDeny = (policy: Policy, direction: Direction): boolean =>
  policy.tier !== 'NetworkPolicy' && (policy[direction] ?? []).some(({ action }) => action === 'Deny');

const label = ({ key }: Policy) => key.slice(0, MAX_LABEL);
/** `explain` and `nft list` show this name. */
const chainOf = (policy: Policy, direction: Direction): string =>
  `${direction}-${label(policy)}-${policy.hash}`;
/** The chain, and the set of the pods by which it counts, of packets that a policy of the whole cluster denies. */
export const deniedChain = (policy: Policy, direction: Direction): string =>
  `denied-${chainOf(policy, direction)}`;
const ruleName = (policy: Policy, direction: Direction, rule: number) =>
  `${chainOf(policy, direction)}-${rule}`;

const blocksOf = (peers: readonly PolicyPeer[] | null): AddressBlock[] =>
  (peers ?? []).flatMap((peer) => (peer.kind === 'block' ? [peer.block] : []));

const ranges = (ports: readonly PolicyPort[]) => ports.filter((port) => port.kind === 'range');

/** A single port is compared; several need a set. */
function needsRangeSet(ports: readonly PolicyPort[]): boolean {
  const [first, second] = ranges(ports);
  return second !== undefined || (first !== undefined && first.first !== first.last);
}

const portBytes = (port: number): Uint8Array => Uint8Array.of(port >> 8, port & 0xff);

/** Returns the merged ranges of each protocol: intervals of a set must not overlap. */
function portElements(set: string, ports: readonly PolicyPort[]): Elements {
  const merged: { protocol: number; first: number; last: number }[] = [];
  const sorted = ranges(ports)
    .map(({ protocol, first, last }) => ({ protocol: PROTOCOL_NUMBER[protocol], first, last }))
    .sort((a, b) => a.protocol - b.protocol || a.first - b.first);
  for (const range of sorted) {
    const previous = merged.at(-1);
    if (previous?.protocol === range.protocol && range.first <= previous.last + 1)
      previous.last = Math.max(previous.last, range.last);
    else merged.push({ ...range });
  }
  const words = merged.flatMap(({ protocol, first, last }) => [
    protocol,
    be16Port(first),
    protocol,
    be16Port(last),
  ]);
  return elements(set, Uint32Array.from(words), { count: merged.length });
}
