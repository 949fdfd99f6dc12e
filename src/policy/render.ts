import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import type { IPFamily } from '../lib/address.ts';
import { familyOf } from '../lib/address.ts';
import { be16Port, wordsOfAddress } from '../nft/encoding.ts';
import {
  accept,
  addressFields,
  counter,
  drop,
  hasAny,
  IPS_DST_NAT,
  is,
  type Rule,
  sourceIsLocal,
  typesOf,
  vmap,
} from '../nft/rule.ts';
import {
  type ChainSpec,
  type ElementGroup,
  elements,
  group,
  rangeElements,
  type TableSpec,
} from '../nft/spec.ts';
import { blockRanges } from './address-block.ts';
import { DIRECTIONS } from './model.ts';
import { createNoteChains } from './name-notes.ts';
import {
  canDeny,
  DENIED,
  ITSELF,
  MAP_OF,
  POLICY_TABLE,
  PROXIES,
  ruleName,
  UNMATCHED,
} from './policy-chain-names.ts';
import { createPolicyChains } from './policy-chains.ts';
import { portKey } from './policy-references.ts';
import { createPolicyRules } from './policy-rules.ts';
import type { PolicyTable } from './policy-table.ts';
import { blocksOf, needsRangeSet, portElements } from './rule-ports.ts';

export { POLICY_TABLE };

/** NF_CT_STATE_BIT: established, related. */
const KNOWN_FLOW = 2 | 4;
/** Neighbour discovery and multicast listeners are not tracked (nf_conntrack_proto_icmpv6.c). */
const UNTRACKED = 64;
const ICMPV6 = 58;

export interface PolicyRenderOptions {
  readonly family: IPFamily;
  /**
   * Returns the addresses of the other nodes if packets to Services go to proxies on the nodes, which check
   * the policies themselves (userspace mode). Null (default): there are no proxies; a rendering does not
   * expect this to change.
   */
  readonly proxies?: (() => readonly string[] | null) | undefined;
  /** What notes about addresses of names contain (name-notes.ts); absent: nothing adds any. */
  readonly noteSecret?: string | undefined;
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

export const PROXIES_OWNER = 'proxies';

export function createPolicyRendering(
  policies: PolicyTable,
  { family, proxies = () => null, noteSecret }: PolicyRenderOptions,
): PolicyRendering {
  const { source, destination } = addressFields(family);
  const isProxied = proxies() !== null;
  const rules = createPolicyRules(family);
  const { portSet, blockSet, rangeSet, deniedSet } = rules;
  const notes = noteSecret === undefined ? null : createNoteChains(family, noteSecret);
  const chains = createPolicyChains(family, rules, { isProxied, notes });

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
      const needs = addresses.length === 0 ? [] : groups.map(chains.group);
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
          needs.push(chains.set(set));
          const element = Uint32Array.from([...own, PROTOCOL_NUMBER[protocol], be16Port(port)]);
          list.push(elements(set.name, element));
        }
        for (const direction of DIRECTIONS) {
          const isolating = isolatedBy[direction].flatMap((one) => policies.activePolicy(one) ?? []);
          if (isolating.length === 0) continue;
          const chain = chains.isolation(direction, isolating);
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
      return group(list, [...chains.names(policy), chains.policy(policy)]);
    },
    proxies() {
      const own = [...new Set(proxies())].filter((address) => familyOf(address) === family);
      const words = own.flatMap((address) => [...wordsOfAddress(address, family)]);
      return own.length === 0
        ? null
        : group([elements(PROXIES, Uint32Array.from(words), { count: own.length })]);
    },
    reset: chains.reset,
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
    { name: 'forward', base: base('forward', PRIORITY.filter), rules: [known, ...isolation] },
    // Packets to processes of the node. Only a pod's egress is decided here.
    {
      name: 'input',
      base: base('input', PRIORITY.behindIpvs),
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
      base: base('output', PRIORITY.filter),
      rules: [known, [sourceIsLocal, accept], ...isolation],
    },
    // After a rule that allows packets sent by pods.
    { name: 'ingress', rules: [[vmap(MAP_OF.ingress, destination)], [accept]] },
    ...DIRECTIONS.map((direction) => ({ name: DENIED[direction], rules: [[counter, drop]] })),
  ];
}
