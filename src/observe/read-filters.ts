import type { NetnsRef } from '../kernel/netns.ts';
import { firstNftObjects } from '../kernel/nftables/connection.ts';
import {
  HOOK,
  NFPROTO,
  NFPROTO_INET,
  NFPROTO_UNSPEC,
  NFTA,
  SET_FLAG,
  TABLE_FLAG,
} from '../kernel/nftables/constants.ts';
import {
  type ChainDump,
  readChain,
  readElements,
  readNamed,
  readRule,
  readSet,
  readTable,
} from '../kernel/nftables/dump.ts';
import { listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { type FilterSet, readFilterRule } from './filter-expressions.ts';
import type { FilterChain, FilterEffect, FilterHook, Filters, FilterTable } from './filter-rules.ts';
import { legacyTables } from './legacy-tables.ts';

const FAMILIES: Readonly<Record<number, FilterTable['family']>> = {
  [NFPROTO_INET]: 'inet',
  [NFPROTO.ipv4]: 'ip',
  [NFPROTO.ipv6]: 'ip6',
};
/** Families whose tables also drop packets on their way, and are not simulated: NFPROTO_NETDEV, NFPROTO_BRIDGE. */
const UNREAD_FAMILIES: Readonly<Record<number, string>> = { 5: 'netdev', 7: 'bridge' };
const HOOKS = new Map<number, FilterHook>([
  [HOOK.prerouting, 'prerouting'],
  [HOOK.input, 'input'],
  [HOOK.forward, 'forward'],
  [HOOK.output, 'output'],
  [HOOK.postrouting, 'postrouting'],
]);
/**
 * Limits of what is read of one namespace. A firewall of a machine has some hundred rules; a pod with CAP_NET_ADMIN may write any
 * number into its own namespace, and an agent must not spend its time on them.
 */
const MAX_TABLES = 256;
/** The iptables mode has some chains for each Service, which are listed, but not read. */
const MAX_CHAINS = 20_000;
const MAX_RULES = 2000;
const MAX_SETS = 64;
/** Of a set: messages of some 30 elements each. */
const MAX_ELEMENT_MESSAGES = 32;
const OWN_TABLE = /^fairlead(-|$)/;
/** Chains of kube-proxy, and of the iptables mode, which has its names: `explain` knows their effect. KUBE-FIREWALL is the kubelet's. */
const SERVICE_CHAIN = /^KUBE-(?!FIREWALL$)/;

type First = (
  ...args: Parameters<typeof firstNftObjects> extends [unknown, ...infer A] ? A : never
) => ReturnType<typeof firstNftObjects>;

/** How much may still be read. */
interface Budget {
  rules: number;
  sets: number;
}

/** Reads the nf_tables tables of other programs in a network namespace. Throws the errors of netlink. */
export async function readFilters(netns: NetnsRef): Promise<Filters> {
  const first: First = (...args) => firstNftObjects(netns, ...args);
  const listed = first('getTable', NFPROTO_UNSPEC, [], MAX_TABLES + 1).map(readTable);
  const unread = [
    ...(listed.length > MAX_TABLES ? [`more than ${MAX_TABLES} tables`] : []),
    ...(await legacyTables(netns)),
  ];
  const budget: Budget = { rules: MAX_RULES, sets: MAX_SETS };
  const tables = listed.flatMap(({ family, name, flags }): FilterTable[] => {
    const kind = FAMILIES[family];
    const other = UNREAD_FAMILIES[family];
    if (other && !OWN_TABLE.test(name) && (flags & TABLE_FLAG.dormant) === 0 && hasHook(first, family, name))
      unread.push(`table ${other} ${name}`);
    if (!kind || OWN_TABLE.test(name) || (flags & TABLE_FLAG.dormant) !== 0) return [];
    const chains = readChains(first, family, name, budget);
    if (chains === null) unread.push(`table ${kind} ${name} has more rules than are read`);
    return chains === null || chains.length === 0 ? [] : [{ family: kind, name, chains }];
  });
  return { tables, unread, devices: tables.length > 0 ? devicesOf(netns) : {} };
}

/** Whether a table has a chain at a hook, at which packets may end. */
function hasHook(first: First, family: number, table: string): boolean {
  return first('getChain', family, [table], MAX_CHAINS + 1)
    .filter((message) => readNamed(message, NFTA.chain.table).name === table)
    .map(readChain)
    .some(
      ({ name, hook, policy }) =>
        hook !== null &&
        (policy === 'drop' ||
          first('getRule', family, [table, name], MAX_RULES)
            .map(readRule)
            .some(({ chain }) => chain === name)),
    );
}

/** Reads the chains of a table at hooks, and those that their rules jump to; null: too many rules. */
function readChains(first: First, family: number, table: string, budget: Budget): FilterChain[] | null {
  const listed = first('getChain', family, [table], MAX_CHAINS + 1);
  // The kernel lists the chains of all tables.
  const chains = listed
    .filter((message) => readNamed(message, NFTA.chain.table).name === table)
    .map(readChain);
  const known = new Map(chains.map((chain) => [chain.name, chain]));
  const wanted = new Set(chains.filter(({ hook }) => hook !== null).map(({ name }) => name));
  if (wanted.size > 0 && listed.length > MAX_CHAINS) return null;
  const sets = new Map<string, FilterSet>();
  const setOf = (name: string): FilterSet | undefined => {
    if (sets.size === 0)
      for (const one of readSets(first, family, table, budget)) sets.set(one.name, one.set);
    return sets.get(name);
  };
  const read: FilterChain[] = [];
  // A set may grow while it is walked.
  for (const name of wanted) {
    const chain = known.get(name);
    if (!chain || SERVICE_CHAIN.test(name)) continue;
    const rules = first('getRule', family, [table, name], budget.rules + 1)
      .map(readRule)
      .filter((rule) => rule.chain === name)
      .map((rule) => readFilterRule(rule, setOf));
    budget.rules -= rules.length;
    if (budget.rules < 0) return null;
    read.push({ name, base: baseOf(chain), rules });
    for (const target of rules.flatMap(({ effect }) => targetsOf(effect))) wanted.add(target);
  }
  return read;
}

function targetsOf(effect: FilterEffect): readonly string[] {
  switch (effect.kind) {
    case 'jump':
    case 'goto':
      return [effect.chain];
    case 'map':
      return (effect.elements ?? []).flatMap((element) => targetsOf(element.effect));
    default:
      return [];
  }
}

function readSets(first: First, family: number, table: string, budget: Budget) {
  return first('getSet', family, [table], MAX_SETS + 1)
    .filter((message) => readNamed(message, NFTA.set.table).name === table)
    .map(readSet)
    .map(({ name, flags, keyLength }): { name: string; set: FilterSet } => {
      const names = [table, name];
      const messages = budget.sets-- > 0 ? first('getElements', family, names, MAX_ELEMENT_MESSAGES) : null;
      const isWhole = messages !== null && messages.length < MAX_ELEMENT_MESSAGES;
      const elements = isWhole ? messages.flatMap(readElements) : null;
      return { name, set: { keyLength, isInterval: (flags & SET_FLAG.interval) !== 0, elements } };
    });
}

function baseOf({ hook, policy }: ChainDump): FilterChain['base'] {
  const name = hook && HOOKS.get(hook.number);
  if (!hook || !name) return null;
  return { hook: name, priority: hook.priority, policy, isNat: hook.type === 'nat' };
}

function devicesOf(netns: NetnsRef): Record<string, string> {
  using socket = openRouteSocket(netns);
  return Object.fromEntries(listLinks(socket).map(({ index, name }) => [String(index), name]));
}
