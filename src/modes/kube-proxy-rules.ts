import { CHAIN, serviceChain, type Table } from '../dataplane/iptables/chain-names.ts';
import {
  chance,
  commentFor,
  FROM_NODE,
  hostNetwork,
  jump,
  type Match,
  type PodMatch,
  podMatch,
  type Rule,
  rule,
  TO_NODE,
} from '../dataplane/iptables/rule.ts';
import { portName } from '../dataplane/rules/frontend-keys.ts';
import { cidrContains, hostPort, type IPFamily, LOOPBACK } from '../lib/address.ts';
import type { Endpoint, Frontend, NodeView, PortRef, Route } from '../service/model.ts';
import { byFamily, filled, type ObjectSection, type RenderInput } from './rendering.ts';

/** A rule with its chain: "-A KUBE-SERVICES …". */
type Line = string;
type Lines = Readonly<Record<Table, Line[]>>;

const CHAINS = {
  services: 'KUBE-SERVICES',
  external: 'KUBE-EXTERNAL-SERVICES',
  nodePorts: 'KUBE-NODEPORTS',
  firewall: 'KUBE-PROXY-FIREWALL',
  postrouting: 'KUBE-POSTROUTING',
} as const;
const RECENT_MASK = { ipv4: '255.255.255.255', ipv6: 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff' } as const;

/**
 * Renders what kube-proxy writes for a Service in its iptables mode (checked against 1.33), in the form of iptables-save: a chain
 * for each endpoint, and the Service's rules among those of all others in KUBE-SERVICES, which a packet is compared with one
 * by one. Left out: what its version, its command line and kernel modules decide (nfacct counters, health-check node ports).
 */
export function renderKubeProxyRules(input: RenderInput): ObjectSection[] {
  return byFamily(input.frontends).flatMap(({ family, frontends }) => {
    const lines: Lines = { nat: [], filter: [] };
    for (const port of portsOf(frontends)) addPort(lines, port, input.node, family);
    const command = `${family === 'ipv4' ? 'iptables' : 'ip6tables'}-save -t`;
    return filled([
      { kind: 'rules', command: `${command} nat`, lines: lines.nat, isShared: false },
      { kind: 'rules', command: `${command} filter`, lines: lines.filter, isShared: false },
      { kind: 'rules', command: `${command} nat`, lines: sharedLines(input.node, family), isShared: true },
    ]);
  });
}

/** A port of a Service, as kube-proxy sees it. */
interface Port {
  readonly owner: PortRef;
  readonly frontends: readonly Frontend[];
  /** Of the whole cluster; those that failover has ejected too, which kube-proxy does not know. */
  readonly cluster: readonly Endpoint[];
  readonly local: readonly Endpoint[];
  readonly isInternalLocal: boolean;
  readonly isExternalLocal: boolean;
}

function portsOf(frontends: readonly Frontend[]): Port[] {
  const ports = new Map<string, Frontend[]>();
  for (const frontend of frontends) {
    const key = `${portName(frontend.owner)}/${frontend.protocol}`;
    ports.set(key, [...(ports.get(key) ?? []), frontend]);
  }
  return [...ports.values()].flatMap((own): Port[] => {
    const [first] = own;
    if (!first) return [];
    const isLocal = (wanted: boolean) =>
      own
        .filter(({ kind }) => (kind === 'ClusterIP') === wanted)
        .some(({ routes }) => isLocalOnly(wanted ? routes.pod : routes.external));
    const routes = own.flatMap((one) => Object.values(one.routes));
    return [
      {
        owner: first.owner,
        frontends: own,
        cluster: endpointsIn(routes, false),
        local: endpointsIn(routes, true),
        isInternalLocal: isLocal(true),
        isExternalLocal: isLocal(false),
      },
    ];
  });
}

const isLocalOnly = (route: Route): boolean =>
  route.action === 'forward' ? route.pool.id.endsWith('/local') : route.reason === 'no-local-endpoints';

function endpointsIn(routes: readonly Route[], isLocal: boolean): Endpoint[] {
  for (const route of routes)
    if (route.action === 'forward' && isLocalOnly(route) === isLocal)
      return [...route.pool.endpoints, ...(route.pool.ejected ?? [])].sort((a, b) =>
        hostPort(a) < hostPort(b) ? -1 : 1,
      );
  return [];
}

/** Adds the rules of a port, in kube-proxy's order. */
function addPort({ nat, filter }: Lines, port: Port, node: NodeView, family: IPFamily): void {
  const { owner, frontends, isInternalLocal, isExternalLocal, cluster, local } = port;
  const hasLocalOnly = frontends.some(({ routes }) => Object.values(routes).some(isLocalOnly));
  // A node without local endpoints does not have the cluster's in its map, if nothing may use them there.
  const hasEndpoints = cluster.length + local.length > 0 || hasLocalOnly;
  const pods = podMatch(node.localDetection, family);
  const chains = {
    svc: serviceChain('KUBE-SVC-', owner),
    svl: serviceChain('KUBE-SVL-', owner),
    ext: serviceChain('KUBE-EXT-', owner),
    fw: serviceChain('KUBE-FW-', owner),
  };
  const isExternal = (one: Frontend) => one.kind !== 'ClusterIP';
  const restricted = frontends.filter(({ allowedSources }) => allowedSources !== null);
  const usable = { internal: isInternalLocal ? local : cluster, external: isExternalLocal ? local : cluster };
  for (const one of frontends) {
    const match = matchOf(one);
    const endpoints = isExternal(one) ? usable.external : usable.internal;
    const isCaught = isExternal(one) ? hasEndpoints : endpoints.length > 0;
    if (isCaught) {
      const policy = isInternalLocal ? chains.svl : chains.svc;
      const target = !isExternal(one) ? policy : one.allowedSources ? chains.fw : chains.ext;
      nat.push(at(one.address === null ? CHAINS.nodePorts : CHAINS.services, match, jump(target)));
    }
    if (one.allowedSources && hasEndpoints)
      filter.push(at(CHAINS.firewall, match, '-j DROP', `traffic not accepted by ${chains.fw}`, owner));
    if (endpoints.length === 0) filter.push(refusal(one, match, hasEndpoints));
  }
  for (const one of frontends.filter((each) => !isExternal(each) && usable.internal.length > 0)) {
    const match = node.masqueradeAll ? {} : pods?.others;
    if (match) nat.push(at(isInternalLocal ? chains.svl : chains.svc, { ...matchOf(one), ...match }, MARK));
  }
  if (hasEndpoints && frontends.some(isExternal)) {
    nat.push(...externalRules(port, chains.ext, chains.svc, pods));
    if (usable.external.length > 0)
      nat.push(at(chains.ext, {}, jump(isExternalLocal ? chains.svl : chains.svc)));
  }
  nat.push(...firewallRules(restricted, chains.fw, chains.ext, node, family));
  const affinity = frontends[0]?.affinitySeconds ?? null;
  const usesCluster = !isInternalLocal || frontends.some(isExternal);
  if (usesCluster) nat.push(...balanceRules(owner, chains.svc, cluster, affinity, family));
  if (isInternalLocal || isExternalLocal)
    nat.push(...balanceRules(owner, chains.svl, local, affinity, family));
  const reached = new Map([...(usesCluster ? cluster : []), ...local].map((one) => [hostPort(one), one]));
  for (const one of [...reached.values()].sort((a, b) => (hostPort(a) < hostPort(b) ? -1 : 1)))
    nat.push(...endpointRules(owner, one, affinity, family));
}

const MARK = jump(CHAIN.markMasquerade);

/** Renders a rule of a chain; `words`: its comment, after the port's name. */
const at = (chain: string, match: Match, target: string, words?: string, owner?: PortRef): Line =>
  `-A ${chain} ${rule(words !== undefined && owner ? { ...match, comment: commentFor(owner, words) } : match, target)}`.trimEnd();

const KIND_WORDS: Readonly<Record<Frontend['kind'], string>> = {
  ClusterIP: 'cluster IP',
  NodePort: '',
  LoadBalancer: 'loadbalancer IP',
  ExternalIP: 'external IP',
};

const matchOf = ({ address, protocol, port, owner, kind }: Frontend): Match => ({
  destination: address === null ? undefined : hostNetwork(address),
  protocol,
  comment: commentFor(owner, KIND_WORDS[kind]),
  port,
});

/** Renders the rule that refuses packets that no endpoint may get: all, or those that the policy Local keeps from other nodes. */
function refusal({ owner, kind, address, family }: Frontend, match: Match, hasEndpoints: boolean): Line {
  const chain = kind === 'ClusterIP' ? CHAINS.services : CHAINS.external;
  const unreachable = `-j REJECT --reject-with ${family === 'ipv4' ? 'icmp' : 'icmp6'}-port-unreachable`;
  const [target, words] = hasEndpoints
    ? (['-j DROP', 'has no local endpoints'] as const)
    : ([unreachable, 'has no endpoints'] as const);
  return at(chain, address === null ? { ...match, more: TO_NODE } : match, target, words, owner);
}

/** Renders KUBE-EXT without its last rule. */
function externalRules(
  { owner, isExternalLocal }: Port,
  ext: string,
  svc: string,
  pods: PodMatch | null,
): Line[] {
  const comment = (words: string) => `${words} for ${portName(owner)} external destinations`;
  const line = (match: Match, target: string): Line => at(ext, match, target);
  if (!isExternalLocal) return [line({ comment: comment('masquerade traffic') }, MARK)];
  return [
    ...(pods ? [line({ ...pods.pods, comment: comment('pod traffic') }, jump(svc))] : []),
    line({ comment: comment('masquerade LOCAL traffic'), more: FROM_NODE }, MARK),
    line({ comment: comment('route LOCAL traffic'), more: FROM_NODE }, jump(svc)),
  ];
}

/** Renders KUBE-FW: the sources that a load balancer's address allows. */
function firewallRules(
  restricted: readonly Frontend[],
  fw: string,
  ext: string,
  node: NodeView,
  family: IPFamily,
): Line[] {
  const [first] = restricted;
  if (!first) return [];
  const ranges = (first.allowedSources ?? []).filter((cidr) => cidr.family === family);
  const comment = commentFor(first.owner, KIND_WORDS.LoadBalancer);
  const own = node[family];
  const isNodeAllowed = own !== null && ranges.some((cidr) => cidrContains(cidr, own));
  const sources = [
    ...ranges.map(({ text, prefix }) => (prefix === 0 ? undefined : text)),
    ...(isNodeAllowed ? restricted.flatMap(({ address }) => (address ? hostNetwork(address) : [])) : []),
  ];
  const rest = `other traffic to ${portName(first.owner)} will be dropped by ${CHAINS.firewall}`;
  return [...sources.map((source) => at(fw, { source, comment }, jump(ext))), at(fw, { comment: rest }, '')];
}

const chainOf = (owner: PortRef, endpoint: Endpoint): string =>
  serviceChain('KUBE-SEP-', owner, hostPort(endpoint));

/** Renders the rules that choose an endpoint: the client's earlier endpoint, or any by chance. */
function balanceRules(
  owner: PortRef,
  chain: string,
  endpoints: readonly Endpoint[],
  affinity: number | null,
  family: IPFamily,
): Line[] {
  const line = (endpoint: Endpoint, more: string | undefined): Line =>
    at(
      chain,
      { comment: `${portName(owner)} -> ${hostPort(endpoint)}`, more },
      jump(chainOf(owner, endpoint)),
    );
  const remembered = endpoints.map((one) =>
    line(
      one,
      `-m recent --rcheck --seconds ${affinity} --reap --name ${chainOf(owner, one)} --mask ${RECENT_MASK[family]} --rsource`,
    ),
  );
  return [
    ...(affinity === null ? [] : remembered),
    ...endpoints.map((one, i) => {
      const left = endpoints.length - i;
      return line(one, left > 1 ? chance(left) : undefined);
    }),
  ];
}

/** Renders KUBE-SEP: an endpoint that reaches itself, and the translation. */
function endpointRules(owner: PortRef, one: Endpoint, affinity: number | null, family: IPFamily): Line[] {
  const chain = chainOf(owner, one);
  const { protocol } = owner;
  const remember = `-m recent --set --name ${chain} --mask ${RECENT_MASK[family]} --rsource `;
  const more = `${affinity === null ? '' : remember}-m ${protocol.toLowerCase()}`;
  return [
    at(chain, { source: hostNetwork(one.ip) }, MARK, '', owner),
    at(chain, { protocol, more }, `-j DNAT --to-destination ${hostPort(one)}`, '', owner),
  ];
}

/** Renders the rules that all Services share. */
function sharedLines(node: NodeView, family: IPFamily): Line[] {
  const mark = `0x${(2 ** node.masqueradeBit).toString(16)}`;
  const comment = 'kubernetes service nodeports; NOTE: this must be the last rule in this chain';
  const to = (match: Match): Rule => `-A ${CHAINS.services} ${rule(match, jump(CHAINS.nodePorts))}`;
  const { all } = node.nodePortAddresses[family];
  const own = node[family];
  const isLoopbackLeftOut = family === 'ipv6' || !node.localhostNodePorts;
  const nodePorts = all
    ? [
        to({
          destination: isLoopbackLeftOut ? `! ${LOOPBACK[family].text}` : undefined,
          comment,
          more: TO_NODE,
        }),
      ]
    : own === null
      ? []
      : [to({ destination: hostNetwork(own), comment })];
  return [
    // xt_comment keeps the characters that rule() replaces.
    ...nodePorts.map((line) => line.replace('nodeports?', 'nodeports;')),
    `-A ${CHAIN.markMasquerade} -j MARK --set-xmark ${mark}/${mark}`,
    `-A ${CHAINS.postrouting} -m mark ! --mark ${mark}/${mark} -j RETURN`,
    `-A ${CHAINS.postrouting} -j MARK --set-xmark ${mark}/0x0`,
    `-A ${CHAINS.postrouting} -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
  ];
}
