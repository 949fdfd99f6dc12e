import type { Table } from '../dataplane/iptables/base-chains.ts';
import { CHAIN } from '../dataplane/iptables/chain-names.ts';
import { createDispatchTree, type DispatchTree, dispatchKey } from '../dataplane/iptables/dispatch-tree.ts';
import { hostNetwork, type Rule, rejectRules } from '../dataplane/iptables/rule.ts';
import { TREES, type TreeKey } from '../dataplane/iptables/ruleset.ts';
import {
  refusalTree,
  type ServiceChains,
  serviceChains,
  type TreeName,
} from '../dataplane/iptables/service-chains.ts';
import { portName } from '../dataplane/rules/frontend-keys.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Frontend } from '../service/model.ts';
import { clusterIPsOf, LATER_TRACKED, range } from './nftables.ts';
import {
  byFamily,
  counted,
  filled,
  type Lookups,
  mainFrontend,
  type ObjectSection,
  type RenderInput,
  type Rendering,
} from './rendering.ts';

type OwnRules = Readonly<Record<Table, ReadonlyMap<string, readonly Rule[]>>>;

/** The rules of PREROUTING and KUBE-SERVICES before the tree of addresses. */
const RULES_BEFORE_TREE = 2;
/** The rules of an endpoint's chain: the mark of a packet to itself, and the translation. */
const ENDPOINT_RULES = 2;

export function renderIptables(input: RenderInput): Rendering {
  const families = byFamily(input.frontends).map(({ family, frontends }) => {
    const ports = chainsByPort(frontends, input, family);
    return { family, ports, rules: ownRules(frontends, ports, input, family) };
  });
  const sections = families.flatMap(({ family, rules, ports }): ObjectSection[] => [
    ...(['nat', 'filter'] as const).map((table) => ({
      kind: 'rules',
      command: `${family === 'ipv4' ? 'iptables' : 'ip6tables'}-save -t ${table}`,
      lines: linesOf(rules[table]),
      isShared: false,
    })),
    {
      kind: 'address sets',
      command: 'ipset list',
      lines: ports.flatMap(({ sets }) =>
        sets.map(
          ({ name, seconds }) =>
            `create ${name} hash:ip family ${family === 'ipv4' ? 'inet' : 'inet6'} timeout ${seconds}`,
        ),
      ),
      isShared: false,
    },
  ]);
  const main = mainFrontend(input.frontends);
  return {
    sections: filled(sections),
    sizes: [{ what: 'lines of iptables-restore', bytes: bytesOf(families.map(({ rules }) => rules)) }],
    translatedAt: 'table nat, chain PREROUTING (pods, outside) or OUTPUT (the node)',
    firstPacket: main ? lookups(main, input) : { least: 0, most: 0, text: '' },
    laterPackets: LATER_TRACKED,
    notes: [],
  };
}

/** Renders the chains of each port of the Service. */
function chainsByPort(
  frontends: readonly Frontend[],
  { node }: RenderInput,
  family: IPFamily,
): ServiceChains[] {
  const own = new Set(node.ownServiceAddresses);
  const ports = new Map<string, Frontend[]>();
  for (const frontend of frontends) {
    if (frontend.address !== null && own.has(frontend.address)) continue;
    const key = `${portName(frontend.owner)}/${frontend.protocol}`;
    ports.set(key, [...(ports.get(key) ?? []), frontend]);
  }
  return [...ports.values()].map((list) => serviceChains(list, node, family, true));
}

/** Returns the Service's own chains, and its rules in the chains of the dispatch trees. */
function ownRules(
  frontends: readonly Frontend[],
  ports: readonly ServiceChains[],
  input: RenderInput,
  family: IPFamily,
): OwnRules {
  const rules = { nat: new Map<string, readonly Rule[]>(), filter: new Map<string, readonly Rule[]>() };
  const trees = new Map<TreeKey, DispatchTree>();
  const enter = (name: TreeKey, key: string, own: readonly Rule[]) => {
    const tree = trees.get(name) ?? treeOf(name, family, input);
    trees.set(name, tree);
    const chain = tree.locate(key)?.chains.at(-1);
    if (chain === undefined) return;
    const list = rules[TREES[name].table];
    list.set(chain, [...(list.get(chain) ?? []), ...own]);
  };
  for (const { entries } of ports)
    for (const [name, keys] of Object.entries(entries))
      for (const [key, own] of keys) enter(name as TreeName, key, own);
  for (const address of clusterIPsOf(frontends, input.map))
    enter('clusterIP', dispatchKey(address), rejectRules({ destination: hostNetwork(address) }, family));
  for (const { chains } of ports) for (const [chain, own] of chains) rules.nat.set(chain, own);
  return rules;
}

/** Returns a tree with the keys of all Services, since they decide its shape; instead of its rules, a key has itself as often. */
function treeOf(name: TreeKey, family: IPFamily, { map, node }: RenderInput): DispatchTree {
  const { prefix, addressed } = TREES[name];
  const own = new Set(node.ownServiceAddresses);
  const keys = new Map<string, readonly Rule[]>();
  const enter = (key: string, count: number) =>
    keys.set(
      key,
      Array.from({ length: count }, () => key),
    );
  if (name === 'clusterIP') {
    for (const ip of map.clusterIPs.keys())
      if (ip.includes(':') === (family === 'ipv6') && !own.has(ip)) enter(dispatchKey(ip), 2);
  } else {
    for (const frontend of map.frontends.values()) {
      const { address, protocol, port } = frontend;
      if (frontend.family !== family || (address !== null && own.has(address))) continue;
      if (treesOf(frontend).includes(name)) enter(dispatchKey(address, protocol, port), 1);
    }
  }
  const tree = createDispatchTree(prefix, family, addressed);
  tree.update(keys);
  return tree;
}

function treesOf(frontend: Frontend): TreeName[] {
  const actions = Object.values(frontend.routes).map(({ action }) => action);
  const trees: TreeName[] = [];
  if (actions.includes('forward')) trees.push(frontend.address === null ? 'nodePort' : 'address');
  if (actions.some((action) => action !== 'forward')) trees.push(refusalTree(frontend));
  if (frontend.allowedSources) trees.push('firewall');
  return trees;
}

const linesOf = (chains: ReadonlyMap<string, readonly Rule[]>): string[] =>
  [...chains].flatMap(([chain, rules]) => rules.map((rule) => `-A ${chain} ${rule}`));

const bytesOf = (families: readonly OwnRules[]): number =>
  families.reduce(
    (sum, { nat, filter }) => sum + Buffer.byteLength([...linesOf(nat), ...linesOf(filter)].join('\n')),
    0,
  );

/** Counts the rules of table nat that a pod's first packet is compared with. */
function lookups(frontend: Frontend, input: RenderInput): Lookups {
  const { node, map } = input;
  const { family, address, protocol, port, owner } = frontend;
  const name = address === null ? 'nodePort' : 'address';
  const tree = treeOf(name, family, input);
  const key = dispatchKey(address, protocol, port);
  const path = tree.locate(key);
  const own = node.ownServiceAddresses.filter((ip) => ip.includes(':') === (family === 'ipv6')).length;
  const before = RULES_BEFORE_TREE + own;
  const ports = [...map.frontends.values()].filter(
    (one) =>
      one.family === family && one.owner.namespace === owner.namespace && one.owner.name === owner.name,
  );
  const [chains] = chainsByPort(
    ports.filter((one) => one.owner.portName === owner.portName && one.protocol === protocol),
    input,
    family,
  );
  const { routes } = frontend;
  const route = routes.pod;
  if (!path || !chains || route.action !== 'forward') {
    const refusals = treeOf(refusalTree(frontend), family, input);
    const count = rulesUntil(refusals, key);
    return {
      least: count,
      most: count,
      text: `${counted('rules', count)} of table filter, the last of which ends it`,
    };
  }
  const [entry = ''] = chains.entries[name].get(key) ?? [];
  const gates = gateRules(entry, chains);
  const found = before + rulesUntil(tree, key);
  const { endpoints } = route.pool;
  const prefix = route.pool.id.endsWith('/local') ? 'KUBE-SVL-' : 'KUBE-SVC-';
  const pool = [...chains.chains].find(([chain]) => chain.startsWith(prefix));
  const others = (pool?.[1].length ?? endpoints.length) - endpoints.length;
  const last = ENDPOINT_RULES + (frontend.affinitySeconds === null ? 0 : 1);
  const least = found + gates.least + others + 1 + last;
  const most = found + gates.most + others + endpoints.length + last;
  return {
    least,
    most,
    text: `${range(least, most)} rules of table nat: ${found} to find the Service among ${tree.size} addresses, then one for each endpoint until one is drawn`,
  };
}

/**
 * Counts the rules of the chains between the tree and the chain of endpoints: KUBE-FW, one of whose rules accepts the
 * source, and KUBE-EXT, whose rules for pods are the first ones.
 */
function gateRules(entry: Rule, { chains }: ServiceChains): { least: number; most: number } {
  let [least, most] = [0, 0];
  for (let target = targetOf(entry); /^KUBE-(FW|EXT)-/.test(target); ) {
    const rules = chains.get(target) ?? [];
    const onward = rules.findIndex((rule) => targetOf(rule) !== CHAIN.markMasquerade);
    least += onward + 1;
    most += target.startsWith('KUBE-FW-') ? rules.length : onward + 1;
    target = targetOf(rules[onward] ?? '');
  }
  return { least, most };
}

const targetOf = (rule: Rule): string => / ?-j (\S+)$/.exec(rule)?.[1] ?? '';

/** Counts the rules that a packet is compared with until the tree has found the key's own; its chains are passed in order. */
function rulesUntil(tree: DispatchTree, key: string): number {
  const all = tree.render();
  const path = tree.locate(key)?.chains ?? [];
  return path.reduce((sum, chain, i) => {
    const rules = all.get(chain) ?? [];
    const next = path[i + 1];
    const at = rules.findIndex((rule) => (next === undefined ? rule === key : rule.endsWith(` ${next}`)));
    return sum + (at < 0 ? rules.length : at + 1);
  }, 0);
}
