import { type Cidr, cidrsOverlap, formatAddress, type IPFamily, LOOPBACK } from '../../lib/address.ts';
import type { HealthCheck, NodeView } from '../../service/model.ts';
import { isOfFamily } from '../rules/address-elements.ts';
import { CHAIN, type Table, TREES, type TreeKey, treeChain } from './chain-names.ts';
import { hostNetwork, jump, type Match, NEW, type Rule, rule, TO_NODE } from './rule.ts';

/** A rule in a built-in chain that jumps to one of ours. */
export interface Hook {
  readonly table: Table;
  readonly chain: string;
  readonly rule: Rule;
}

/** Settings of the node that the rules depend on. */
export interface BaseSettings {
  readonly node: NodeView;
  readonly family: IPFamily;
  readonly healthChecks: readonly HealthCheck[];
  /** `nf_conntrack_tcp_be_liberal` is off: packets that connection tracking calls invalid would pass untranslated. */
  readonly dropInvalid: boolean;
}

/** Matches of several hooks. */
const PORTALS: Match = { comment: 'kubernetes service portals' };
const NEW_PORTALS: Match = { ...PORTALS, more: NEW };
const EXTERNAL_PORTALS: Match = { comment: 'kubernetes externally-visible service portals', more: NEW };
const FIREWALL: Match = { comment: 'kubernetes load balancer firewall', more: NEW };

/** In the order in which packets pass them. */
export const HOOKS: readonly Hook[] = [
  hook('nat', 'PREROUTING', PORTALS, CHAIN.services),
  hook('nat', 'OUTPUT', PORTALS, CHAIN.services),
  hook('nat', 'POSTROUTING', { comment: 'kubernetes postrouting rules' }, CHAIN.postrouting),
  hook('filter', 'INPUT', FIREWALL, CHAIN.proxyFirewall),
  hook('filter', 'INPUT', { comment: 'kubernetes health check service ports' }, CHAIN.nodePorts),
  hook('filter', 'INPUT', EXTERNAL_PORTALS, CHAIN.externalServices),
  hook('filter', 'INPUT', { comment: 'guard loopback addresses' }, CHAIN.localnet),
  hook('filter', 'FORWARD', FIREWALL, CHAIN.proxyFirewall),
  hook('filter', 'FORWARD', { comment: 'kubernetes forwarding rules' }, CHAIN.forward),
  hook('filter', 'FORWARD', NEW_PORTALS, CHAIN.services),
  hook('filter', 'FORWARD', EXTERNAL_PORTALS, CHAIN.externalServices),
  hook('filter', 'OUTPUT', FIREWALL, CHAIN.proxyFirewall),
  hook('filter', 'OUTPUT', NEW_PORTALS, CHAIN.services),
  hook('filter', 'OUTPUT', EXTERNAL_PORTALS, CHAIN.externalServices),
];

function hook(table: Table, chain: string, match: Match, target: string): Hook {
  return { table, chain, rule: rule(match, jump(target)) };
}

/** Renders the chains that do not depend on Services, by table. */
export function baseChains(settings: BaseSettings): Record<Table, Map<string, readonly Rule[]>> {
  const { node, family, healthChecks, dropInvalid } = settings;
  const mark = `0x${(2 ** node.masqueradeBit).toString(16)}`;
  const own = node.ownServiceAddresses
    .filter((address) => isOfFamily(address, family))
    .map((address) =>
      rule({ destination: hostNetwork(address), comment: 'answered by this node itself' }, '-j RETURN'),
    );
  const tree = (key: TreeKey) => jump(treeChain(TREES[key].prefix, ''));
  const toNodePorts = nodePortMatches(node, family);
  const nat = new Map<string, readonly Rule[]>([
    [
      CHAIN.services,
      [
        ...own,
        rule({ comment: 'kubernetes services, by address' }, tree('address')),
        ...toNodePorts.map((match) =>
          rule({ ...match, comment: 'kubernetes service nodeports' }, jump(CHAIN.nodePorts)),
        ),
      ],
    ],
    [CHAIN.nodePorts, [rule({}, tree('nodePort'))]],
    [CHAIN.markMasquerade, [rule({}, `-j MARK --set-xmark ${mark}/${mark}`)]],
    [
      CHAIN.postrouting,
      [
        rule(
          { comment: 'endpoints that reach themselves', more: '-m conntrack --ctstate DNAT' },
          tree('hairpin'),
        ),
        rule({ more: `-m mark ! --mark ${mark}/${mark}` }, '-j RETURN'),
        rule({}, `-j MARK --set-xmark ${mark}/0x0`),
        rule({ comment: 'kubernetes service traffic requiring SNAT' }, '-j MASQUERADE --random-fully'),
      ],
    ],
  ]);
  const networks = node.serviceCidrs.filter((cidr) => cidr.family === family).map((cidr) => cidr.text);
  const filter = new Map<string, readonly Rule[]>([
    [CHAIN.proxyFirewall, [rule({}, tree('firewall'))]],
    [
      CHAIN.services,
      [
        ...own,
        rule({}, tree('rejectAddress')),
        rule({ comment: 'no such port of a service' }, tree('clusterIP')),
        ...networks.map((destination) =>
          rule({ destination, comment: 'no service has this address' }, '-j DROP'),
        ),
        ...(guardsLoopback(node, family) ? [loopbackCounter(mark)] : []),
      ],
    ],
    [
      CHAIN.externalServices,
      [rule({}, tree('rejectExternal')), ...toNodePorts.map((match) => rule(match, tree('rejectNodePort')))],
    ],
    [
      CHAIN.nodePorts,
      healthChecks.map((check) =>
        rule(
          {
            protocol: 'TCP',
            comment: `${check.namespace}/${check.name} health check node port`,
            port: check.port,
          },
          '-j ACCEPT',
        ),
      ),
    ],
    [
      CHAIN.forward,
      [
        ...(dropInvalid ? [DROP_INVALID] : []),
        rule({ comment: 'kubernetes forwarding rules', more: `-m mark --mark ${mark}/${mark}` }, '-j ACCEPT'),
        rule(
          {
            comment: 'kubernetes forwarding conntrack rule',
            more: '-m conntrack --ctstate RELATED,ESTABLISHED',
          },
          '-j ACCEPT',
        ),
      ],
    ],
    [CHAIN.localnet, guardsLoopback(node, family) ? [LOOPBACK_GUARD] : []],
  ]);
  return { nat, filter };
}

const DROP_INVALID = rule({ more: '-m conntrack --ctstate INVALID' }, '-j DROP');

/** Counts new connections to node ports on 127.0.0.0/8; the mark tells them from translations of other programs. */
const loopbackCounter = (mark: string): Rule =>
  rule(
    {
      comment: 'node ports on loopback addresses',
      more: `-m mark --mark ${mark}/${mark} -m conntrack --ctstate DNAT --ctorigdst 127.0.0.0/8`,
    },
    '-j RETURN',
  );

/** Rules of the filter table whose packets are counted in kube-proxy's metrics. */
export const COUNTED = {
  invalidDropped: { chain: CHAIN.forward, options: '--ctstate INVALID' },
  loopbackAccepted: { chain: CHAIN.services, options: '--ctorigdst 127.0.0.0/8' },
} as const;

/** Drops packets for 127.0.0.0/8 from outside, which `route_localnet` would let in (CVE-2020-8558). */
const LOOPBACK_GUARD = rule(
  {
    source: '! 127.0.0.0/8',
    destination: '127.0.0.0/8',
    comment: 'block incoming localnet connections',
    more: '-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT',
  },
  '-j DROP',
);

/** Returns true if node ports answer on 127.0.0.0/8, which needs `route_localnet`. */
const guardsLoopback = (node: NodeView, family: IPFamily): boolean =>
  family === 'ipv4' && node.localhostNodePorts;

/** Returns matches for the destinations on which node ports answer. */
export function nodePortMatches(node: NodeView, family: IPFamily): Match[] {
  const addresses = node.nodePortAddresses[family];
  const loopback = LOOPBACK[family];
  const notLoopback = { destination: `! ${loopback.text}`, more: TO_NODE };
  if (addresses.all) return node.localhostNodePorts ? [{ more: TO_NODE }] : [notLoopback];
  const cidrs = addresses.cidrs.filter((cidr) => cidr.family === family);
  if (!node.localhostNodePorts) {
    if (cidrs.some(({ prefix }) => prefix === 0)) return [notLoopback];
    const networks = cidrs.flatMap((cidr) => withoutNetwork(cidr, loopback));
    return networks.map(({ text }) => ({ destination: text, more: TO_NODE }));
  }
  const networks = cidrs.map((cidr) => (cidr.prefix === 0 ? undefined : cidr.text));
  if (!networks.includes(loopback.text)) networks.push(loopback.text);
  return networks.map((destination) => ({ destination, more: TO_NODE }));
}

/** Returns networks that cover `cidr` without `other`. */
function withoutNetwork(cidr: Cidr, other: Cidr): Cidr[] {
  if (!cidrsOverlap(cidr, other)) return [cidr];
  if (cidr.prefix >= other.prefix) return [];
  const prefix = cidr.prefix + 1;
  const upper = Uint8Array.from(cidr.bytes);
  upper[cidr.prefix >> 3] = (upper[cidr.prefix >> 3] ?? 0) | (0x80 >> (cidr.prefix & 7));
  return [cidr.bytes, upper].flatMap((bytes) =>
    withoutNetwork({ family: cidr.family, bytes, prefix, text: `${formatAddress(bytes)}/${prefix}` }, other),
  );
}
