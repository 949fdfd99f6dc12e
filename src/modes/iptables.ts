import { CHAIN, type Table, TREES, type TreeKey } from '../dataplane/iptables/chain-names.ts';
import { createDispatchTree, type DispatchTree, dispatchKey } from '../dataplane/iptables/dispatch-tree.ts';
import type { Rule } from '../dataplane/iptables/rule.ts';
import { hairpinRules, rejectAddress } from '../dataplane/iptables/ruleset.ts';
import {
  entryTree,
  poolChain,
  refusalTree,
  type ServiceChains,
  serviceChains,
  type TreeEntry,
} from '../dataplane/iptables/service-chains.ts';
import { portName } from '../dataplane/rules/frontend-keys.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Frontend } from '../service/model.ts';
import { clusterIPsOf, hairpinAddressesOf, LATER_TRACKED, range } from './nftables.ts';
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

type TableRules = Readonly<Record<Table, Map<string, readonly Rule[]>>>;

/** The rules of PREROUTING and KUBE-SERVICES before the tree of addresses. */
const RULES_BEFORE_TREE = 2;
/** The rules of an endpoint's chain, which only Services with session affinity have: remember the client, and translate. */
const AFFINITY_RULES = 2;

export function renderIptables(input: RenderInput): Rendering {
  const families = byFamily(input.frontends).map(({ family, frontends }) => {
    const ports = chainsByPort(frontends, input, family);
    const shared = sharedRules(frontends, input, family);
    return { family, ports, shared, rules: ownRules(frontends, ports, input, family) };
  });
  const section = (family: IPFamily, table: Table, rules: TableRules, isShared: boolean): ObjectSection => ({
    kind: 'rules',
    command: `${family === 'ipv4' ? 'iptables' : 'ip6tables'}-save -t ${table}`,
    lines: linesOf(rules[table]),
    isShared,
  });
  const sections = families.flatMap(({ family, rules, shared, ports }): ObjectSection[] => [
    section(family, 'nat', rules, false),
    section(family, 'nat', shared, true),
    section(family, 'filter', rules, false),
    {
      kind: 'address sets',
      command: 'ipset list',
      lines: ports.flatMap(({ sets }) =>
        [...sets.values()].map(
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
): TableRules {
  const clusterIPs = [...clusterIPsOf(frontends, input.map)].map((ip): TreeEntry => {
    return { tree: 'clusterIP', key: dispatchKey(ip), rules: rejectAddress(ip, family) };
  });
  const rules = rulesIn([...ports.flatMap(({ entries }) => entries), ...clusterIPs], input, family);
  for (const { chains } of ports) for (const [chain, own] of chains) rules.nat.set(chain, own);
  return rules;
}

/** Returns the marks of the Service's endpoints that reach themselves, which all Services share. */
const sharedRules = (frontends: readonly Frontend[], input: RenderInput, family: IPFamily): TableRules => {
  const addresses = [...hairpinAddressesOf(frontends, input.map)];
  const entries = addresses.map((ip): TreeEntry => {
    return { tree: 'hairpin', key: dispatchKey(ip), rules: hairpinRules(ip) };
  });
  return rulesIn(entries, input, family);
};

/** Returns the rules of these entries by the chains of the dispatch trees that they are in. */
function rulesIn(entries: readonly TreeEntry[], input: RenderInput, family: IPFamily): TableRules {
  const rules = { nat: new Map<string, readonly Rule[]>(), filter: new Map<string, readonly Rule[]>() };
  const trees = new Map<TreeKey, DispatchTree>();
  for (const { tree: name, key, rules: own } of entries) {
    const tree = trees.get(name) ?? treeOf(name, family, input);
    trees.set(name, tree);
    const chain = tree.locate(key)?.chains.at(-1);
    if (chain === undefined) continue;
    const list = rules[TREES[name].table];
    list.set(chain, [...(list.get(chain) ?? []), ...own]);
  }
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
  const isOurs = (ip: string) => ip.includes(':') === (family === 'ipv6') && !own.has(ip);
  if (name === 'clusterIP') {
    for (const ip of map.clusterIPs.keys()) if (isOurs(ip)) enter(dispatchKey(ip), 2);
  } else if (name === 'hairpin') {
    for (const ip of map.hairpinAddresses) if (isOurs(ip)) enter(dispatchKey(ip), 1);
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

function treesOf(frontend: Frontend): TreeKey[] {
  const actions = Object.values(frontend.routes).map(({ action }) => action);
  const trees: TreeKey[] = [];
  if (actions.includes('forward')) trees.push(entryTree(frontend));
  if (actions.some((action) => action !== 'forward')) trees.push(refusalTree(frontend));
  if (frontend.allowedSources) trees.push('firewall');
  return trees;
}

const linesOf = (chains: ReadonlyMap<string, readonly Rule[]>): string[] =>
  [...chains].flatMap(([chain, rules]) => rules.map((rule) => `-A ${chain} ${rule}`));

const bytesOf = (families: readonly TableRules[]): number =>
  families.reduce(
    (sum, { nat, filter }) => sum + Buffer.byteLength([...linesOf(nat), ...linesOf(filter)].join('\n')),
    0,
  );

/** Counts the rules of table nat that a pod's first packet is compared with. */
function lookups(frontend: Frontend, input: RenderInput): Lookups {
  const { node, map } = input;
  const { family, address, protocol, port, owner } = frontend;
  const name = entryTree(frontend);
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
  const [entry = ''] = chains.entries.find((one) => one.tree === name && one.key === key)?.rules ?? [];
  const gates = gateRules(entry, chains);
  const found = before + rulesUntil(tree, key);
  const { endpoints } = route.pool;
  const pool = chains.chains.get(poolChain(owner, route.pool));
  const others = (pool?.length ?? endpoints.length) - endpoints.length;
  const last = frontend.affinitySeconds === null ? 0 : AFFINITY_RULES;
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
