import type { AddressSet } from '../../kernel/ipset.ts';
import { hostPort, type IPFamily } from '../../lib/address.ts';
import type {
  Endpoint,
  Frontend,
  FrontendKey,
  NodeView,
  Pool,
  PortRef,
  Route,
  SourceClass,
} from '../../service/model.ts';
import { poolsOf } from '../../service/pools.ts';
import { portName } from '../rules/frontend-keys.ts';
import { CHAIN, SET_PREFIX, serviceChain, type TreeKey } from './chain-names.ts';
import { dispatchKey } from './dispatch-tree.ts';
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
  rejectRules,
  rule,
} from './rule.ts';

/** The rules of a key in a dispatch tree. */
export interface TreeEntry {
  readonly tree: TreeKey;
  readonly key: string;
  readonly rules: readonly Rule[];
}

/** The chains of a service port that a frontend's packets may pass before the chain of a pool; null: there is none. */
export interface FrontendChains {
  /** Accepts allowed sources. */
  readonly firewall: string | null;
  /** Has rules for each source class. */
  readonly classes: string | null;
}

/**
 * The clients with affinity to an endpoint. xt_recent, which kube-proxy uses, keeps only 100 clients of an
 * endpoint, and its limit is fixed when the module is loaded.
 */
export type AffinitySet = AddressSet;

/** The chains, sets and tree entries of one service port in one family. */
export interface ServiceChains {
  /** Chains of the nat table. */
  readonly chains: ReadonlyMap<string, readonly Rule[]>;
  readonly sets: ReadonlyMap<string, AffinitySet>;
  readonly entries: readonly TreeEntry[];
  readonly frontends: ReadonlyMap<FrontendKey, FrontendChains>;
}

const KIND_WORDS: Readonly<Record<Frontend['kind'], string>> = {
  ClusterIP: 'cluster IP',
  NodePort: '',
  LoadBalancer: 'loadbalancer IP',
  ExternalIP: 'external IP',
};

/**
 * Renders the frontends of one service port, which have the same owner and family. Without `withAffinity` session affinity
 * is left out.
 */
export function serviceChains(
  frontends: readonly Frontend[],
  node: NodeView,
  family: IPFamily,
  withAffinity: boolean,
): ServiceChains {
  const pods = podMatch(node.localDetection, family);
  const chains = new Map<string, readonly Rule[]>();
  const entries: TreeEntry[] = [];
  const pools = new Map<string, { pool: Pool; affinity: number | null; marks: Rule[] }>();
  const sets = new Map<string, AffinitySet>();
  const passed = new Map<FrontendKey, FrontendChains>();

  for (const frontend of frontends) {
    for (const pool of poolsOf(frontend)) {
      const name = poolChain(frontend.owner, pool);
      const affinity = withAffinity ? frontend.affinitySeconds : null;
      if (!pools.has(name)) pools.set(name, { pool, affinity, marks: [] });
    }
    const key = dispatchKey(frontend.address, frontend.protocol, frontend.port);
    const enterIn = (tree: TreeKey, rules: readonly Rule[]) => {
      if (rules.length > 0) entries.push({ tree, key, rules });
    };
    enterIn(entryTree(frontend), enter(frontend));
    const refusal = refuse(frontend, pods);
    enterIn(refusalTree(frontend), refusal);
    if (frontend.allowedSources) enterIn('firewall', firewallRules(frontend, refusal.length > 0));
  }
  for (const [name, { pool, affinity, marks }] of pools) {
    const [frontend] = frontends;
    if (frontend) renderPool(frontend.owner, name, pool, affinity, marks);
  }
  return { chains, sets, entries, frontends: passed };

  /** Renders the rule that jumps to the frontend's chains; none if no source class is forwarded. */
  function enter(frontend: Frontend): Rule[] {
    const { owner, kind } = frontend;
    const forwards = routesOf(frontend).filter((route) => route.action === 'forward');
    const [first] = forwards;
    if (!first) return [];
    let target: string;
    let firewall: string | null = null;
    let classes: string | null = null;
    const samePool = forwards.length === 3 && forwards.every((route) => route.pool === first.pool);
    const marks = kind === 'ClusterIP' && samePool ? masqueradeRules(frontend, pods) : null;
    if (marks) {
      target = poolChain(owner, first.pool);
      pools.get(target)?.marks.push(...marks);
    } else {
      const rules = classRules(frontend, pods);
      classes = ownChain('KUBE-EXT-', owner, rules);
      target = classes;
    }
    if (frontend.allowedSources) {
      const allowed = allowedNetworks(frontend).map((source) =>
        rule({ source, comment: commentFor(owner, KIND_WORDS[kind]) }, jump(target)),
      );
      firewall = ownChain('KUBE-FW-', owner, allowed);
      target = firewall;
    }
    passed.set(frontend.key, { firewall, classes });
    return [rule(frontendMatch(frontend), jump(target))];
  }

  /**
   * Adds a chain with the owner's usual name, or with another name if frontends of the owner need different
   * chains.
   */
  function ownChain(prefix: 'KUBE-EXT-' | 'KUBE-FW-', owner: PortRef, rules: readonly Rule[]): string {
    let name = serviceChain(prefix, owner);
    const known = chains.get(name);
    if (known && known.join('\n') !== rules.join('\n')) name = serviceChain(prefix, owner, rules.join('\n'));
    chains.set(name, rules);
    return name;
  }

  function renderPool(
    owner: PortRef,
    name: string,
    pool: Pool,
    affinity: number | null,
    marks: readonly Rule[],
  ): void {
    const { endpoints } = pool;
    const { protocol } = owner;
    const lines: Rule[] = [...marks];
    chains.set(name, lines);
    // Only the first rule says whose chain it is: a comment has twice the bytes of everything else in a rule.
    const add = (match: Match, target: string) =>
      lines.push(rule(lines.length === 0 ? { ...match, comment: portName(owner) } : match, target));
    const translate = (endpoint: Endpoint) => `-j DNAT --to-destination ${hostPort(endpoint)}`;
    if (affinity !== null) {
      for (const endpoint of endpoints) {
        const chain = endpointChain(owner, endpoint);
        const set = serviceChain(SET_PREFIX, owner, `${hostPort(endpoint)} ${affinity}`);
        sets.set(set, { name: set, family, seconds: affinity });
        add({ more: `-m set --match-set ${set} src` }, jump(chain));
        chains.set(chain, [
          rule({}, `-j SET --add-set ${set} src --exist`),
          rule({ protocol }, translate(endpoint)),
        ]);
      }
    }
    for (const [i, endpoint] of endpoints.entries()) {
      const left = endpoints.length - i;
      const more = left > 1 ? chance(left) : undefined;
      if (affinity === null) add({ protocol, more }, translate(endpoint));
      else add({ more }, jump(endpointChain(owner, endpoint)));
    }
  }
}

/** Returns the chain of an endpoint of a Service with session affinity. */
export const endpointChain = (owner: PortRef, endpoint: Endpoint): string =>
  serviceChain('KUBE-SEP-', owner, hostPort(endpoint));

/** Returns the dispatch tree of the rules that forward a frontend's packets. */
export const entryTree = ({ address }: Frontend) => (address === null ? 'nodePort' : 'address');

/** Returns the dispatch tree of the rules that reject or drop a frontend's packets. */
export const refusalTree = ({ address, kind }: Frontend) =>
  address === null ? 'rejectNodePort' : kind === 'ClusterIP' ? 'rejectAddress' : 'rejectExternal';

export const poolChain = (owner: PortRef, pool: Pool): string =>
  serviceChain(pool.id.endsWith('/local') ? 'KUBE-SVL-' : 'KUBE-SVC-', owner);

const routesOf = ({ routes }: Frontend): readonly Route[] => [routes.pod, routes.node, routes.external];

const frontendMatch = (frontend: Frontend): Match => ({
  destination: frontend.address === null ? undefined : hostNetwork(frontend.address),
  protocol: frontend.protocol,
  comment: commentFor(frontend.owner, KIND_WORDS[frontend.kind]),
  port: frontend.port,
});

/** Matches a source class, in the order pod, node, external; null if it cannot be identified. */
function classMatch(source: SourceClass, pods: PodMatch | null): Match | null {
  switch (source) {
    case 'pod':
      return pods?.pods ?? null;
    case 'node':
      return { more: FROM_NODE };
    case 'external':
      return {};
  }
}

/**
 * Returns the source classes with their matches; equal ones at the end are merged into one without a match.
 */
function distinctClasses(
  frontend: Frontend,
  pods: PodMatch | null,
): { match: Match; route: Route; source: SourceClass }[] {
  const all = (['pod', 'node', 'external'] as const).flatMap((source) => {
    const match = classMatch(source, pods);
    return match ? [{ match, route: frontend.routes[source], source }] : [];
  });
  while (all.length > 1 && sameRoute(all.at(-1)?.route, all.at(-2)?.route)) all.splice(-2, 1);
  return all;
}

function sameRoute(a: Route | undefined, b: Route | undefined): boolean {
  if (a?.action !== 'forward' || b?.action !== 'forward') return a?.action === b?.action;
  return a.pool === b.pool && a.masquerade === b.masquerade;
}

/** Renders KUBE-EXT, which has rules for each source class. */
function classRules(frontend: Frontend, pods: PodMatch | null): Rule[] {
  const { owner } = frontend;
  const words: Record<SourceClass, [mark: string, route: string]> = {
    pod: [
      `masquerade pod traffic for ${portName(owner)} external destinations`,
      `pod traffic for ${portName(owner)} external destinations`,
    ],
    node: [
      `masquerade LOCAL traffic for ${portName(owner)} external destinations`,
      `route LOCAL traffic for ${portName(owner)} external destinations`,
    ],
    external: [`masquerade traffic for ${portName(owner)} external destinations`, ''],
  };
  return distinctClasses(frontend, pods).flatMap(({ match, route, source }) => {
    if (route.action !== 'forward') return [rule(match, '-j RETURN')];
    const [mark, comment] = words[source];
    const onward = rule(comment ? { ...match, comment } : match, jump(poolChain(owner, route.pool)));
    return route.masquerade
      ? [rule({ ...match, comment: mark }, jump(CHAIN.markMasquerade)), onward]
      : [onward];
  });
}

/**
 * Renders the marks at the head of the pool's chain, as kube-proxy does, for a cluster IP whose classes differ only in
 * masquerading. Null if that needs more than one match.
 */
function masqueradeRules(frontend: Frontend, pods: PodMatch | null): Rule[] | null {
  const marks = (source: SourceClass): boolean => {
    const route = frontend.routes[source];
    return route.action === 'forward' && route.masquerade;
  };
  const mark = (match: Match) => rule({ ...frontendMatch(frontend), ...match }, jump(CHAIN.markMasquerade));
  if (marks('node') !== marks('external')) return null;
  if (!pods || marks('pod') === marks('node')) return marks('node') ? [mark({})] : [];
  return marks('pod') ? [mark(pods.pods)] : [mark(pods.others)];
}

/**
 * Renders the rules of the filter table for packets that were not translated. If all refused classes have
 * the same action no match is needed: by then, packets of the other classes have another destination.
 */
function refuse(frontend: Frontend, pods: PodMatch | null): Rule[] {
  const refused = routesOf(frontend).filter((route) => route.action !== 'forward');
  const [first] = refused;
  if (!first) return [];
  const base = frontendMatch(frontend);
  if (refused.every((route) => route.action === first.action)) return verdict(base, first, frontend);
  return distinctClasses(frontend, pods).flatMap(({ match, route }) =>
    route.action === 'forward' ? [] : verdict({ ...base, ...match }, route, frontend),
  );
}

function verdict(match: Match, route: Route, frontend: Frontend): Rule[] {
  if (route.action === 'forward') return [];
  const why = route.reason === 'no-endpoints' ? 'has no endpoints' : 'has no local endpoints';
  const explained = { ...match, comment: commentFor(frontend.owner, why) };
  return route.action === 'reject' ? rejectRules(explained, frontend.family) : [rule(explained, '-j DROP')];
}

/** Source ranges of the frontend's family; undefined for 0.0.0.0/0 and ::/0, which iptables prints without a match. */
function allowedNetworks({ allowedSources, family }: Frontend): (string | undefined)[] {
  return (allowedSources ?? [])
    .filter((cidr) => cidr.family === family)
    .map((cidr) => (cidr.prefix === 0 ? undefined : cidr.text));
}

/** Drops packets from outside the ranges, which were not translated; allowed ones may still be refused later. */
function firewallRules(frontend: Frontend, refused: boolean): Rule[] {
  const match = frontendMatch(frontend);
  const returns = refused
    ? allowedNetworks(frontend).map((source) => rule({ ...match, source }, '-j RETURN'))
    : [];
  const comment = `${portName(frontend.owner)} traffic not accepted by ${serviceChain('KUBE-FW-', frontend.owner)}`;
  return [...returns, rule({ ...match, comment }, '-j DROP')];
}
