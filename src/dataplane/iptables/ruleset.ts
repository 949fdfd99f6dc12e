import type { IPFamily } from '../../lib/address.ts';
import { recordOf } from '../../lib/record-of.ts';
import { diff } from '../../service/diff.ts';
import type { Change, Frontend, FrontendKey, PortRef, ServiceMap } from '../../service/model.ts';
import { isOfFamily } from '../rules/address-elements.ts';
import { portName } from '../rules/frontend-keys.ts';
import { baseChains } from './base-chains.ts';
import { CHAIN, TABLES, type Table, TREE_KEYS, TREES, type TreeKey } from './chain-names.ts';
import { createDispatchTree, type DispatchTree, dispatchKey } from './dispatch-tree.ts';
import { hostNetwork, jump, type Rule, rejectRules, rule, sameRules } from './rule.ts';
import {
  type AffinitySet,
  type FrontendChains,
  type ServiceChains,
  serviceChains,
} from './service-chains.ts';

/** Changes to write: chains with all their rules, and chains to delete. */
export interface RulesetChange {
  readonly written: Readonly<Record<Table, Map<string, readonly Rule[]>>>;
  readonly deleted: Readonly<Record<Table, string[]>>;
  readonly setsAdded: AffinitySet[];
  readonly setsRemoved: string[];
}

/** A service port, and its chains in the kernel. */
interface OwnerState {
  readonly frontends: Map<FrontendKey, Frontend>;
  rendered: ServiceChains;
}

/** The rules of keys in each tree; null to remove. */
type Edits = Record<TreeKey, Map<string, readonly Rule[] | null>>;

/** The rules of one family for a ServiceMap, updated with it. */
export interface Ruleset {
  readonly family: IPFamily;
  /** Applies a change that does not affect the node. Returns the changed chains. */
  apply(change: Change, map: ServiceMap): RulesetChange;
  /** Returns every chain with its rules. */
  chains(): Iterable<readonly [table: Table, chain: string, rules: readonly Rule[]]>;
  /** Returns the same by table. */
  render(): Record<Table, Map<string, readonly Rule[]>>;
  readonly sets: ReadonlyMap<string, AffinitySet>;
  /** Returns the service port ("namespace/name:port/TCP") that owns a chain. */
  ownerOf(chain: string): string | null;
  /** Returns the dispatch chains that lead to a key, and its rules; null if it has none in this tree. */
  locate(tree: TreeKey, key: string): ReturnType<DispatchTree['locate']>;
  /** Returns the chains that a forwarded frontend's packets pass before the chain of a pool. */
  chainsOf(frontend: Frontend): FrontendChains;
}

export interface RulesetOptions {
  /** See BaseSettings. */
  readonly dropInvalid: boolean;
  /** False if the kernel lacks ipset: there is no session affinity then. */
  readonly affinity: boolean;
}

/** Builds the rules of a whole map. */
export function createRuleset(map: ServiceMap, family: IPFamily, options: RulesetOptions): Ruleset {
  const { dropInvalid, affinity } = options;
  const owners = new Map<string, OwnerState>();
  const trees = recordOf(TREE_KEYS, (key) =>
    createDispatchTree(TREES[key].prefix, family, TREES[key].addressed),
  );
  const sets = new Map<string, AffinitySet>();
  const own = new Set(map.node.ownServiceAddresses);
  let current = map;

  const mine = (frontend: Frontend | null): frontend is Frontend =>
    frontend?.family === family && !own.has(frontend.address ?? '');

  const base = () =>
    baseChains({
      node: current.node,
      family,
      healthChecks: [...current.healthChecks.values()],
      dropInvalid,
    });

  function ownerState(owner: PortRef): OwnerState {
    const key = ownerKey(owner);
    const known = owners.get(key);
    if (known) return known;
    const fresh: OwnerState = { frontends: new Map(), rendered: NOTHING };
    owners.set(key, fresh);
    return fresh;
  }

  /** Updates the chains, sets and tree entries of one owner. */
  function refresh(key: string, out: RulesetChange, edits: Edits): void {
    const state = owners.get(key);
    if (!state) return;
    const { chains, sets: oldSets, entries } = state.rendered;
    const wanted = serviceChains([...state.frontends.values()], current.node, family, affinity);
    state.rendered = wanted;
    for (const [chain, rules] of wanted.chains) {
      if (!sameRules(chains.get(chain), rules)) out.written.nat.set(chain, rules);
    }
    for (const chain of chains.keys()) if (!wanted.chains.has(chain)) out.deleted.nat.push(chain);
    for (const set of wanted.sets.values()) {
      if (sets.has(set.name)) continue;
      out.setsAdded.push(set);
      sets.set(set.name, set);
    }
    for (const name of oldSets.keys()) {
      if (wanted.sets.has(name)) continue;
      out.setsRemoved.push(name);
      sets.delete(name);
    }
    // A key that moves from one owner to another in this change may be set already.
    for (const { tree, key } of entries) if (!edits[tree].has(key)) edits[tree].set(key, null);
    for (const { tree, key, rules } of wanted.entries) edits[tree].set(key, rules);
    if (state.frontends.size === 0) owners.delete(key);
  }

  function apply(change: Change): RulesetChange {
    const out: RulesetChange = {
      written: { nat: new Map(), filter: new Map() },
      deleted: { nat: [], filter: [] },
      setsAdded: [],
      setsRemoved: [],
    };
    const edits: Edits = recordOf(TREE_KEYS, () => new Map());
    const dirty = new Set<string>();
    for (const { key, before, after } of change.frontends) {
      if (mine(before)) {
        owners.get(ownerKey(before.owner))?.frontends.delete(key);
        dirty.add(ownerKey(before.owner));
      }
      if (mine(after)) {
        ownerState(after.owner).frontends.set(key, after);
        dirty.add(ownerKey(after.owner));
      }
    }
    for (const key of dirty) refresh(key, out, edits);
    editAddresses(change, edits, family, own);
    updateTrees(trees, edits, out);
    if (change.healthChecks.length > 0) {
      const rules = base().filter.get(CHAIN.nodePorts);
      if (rules) out.written.filter.set(CHAIN.nodePorts, rules);
    }
    return out;
  }

  function* chains(): ReturnType<Ruleset['chains']> {
    const fixed = base();
    for (const table of TABLES) {
      for (const [chain, rules] of fixed[table]) yield [table, chain, rules];
    }
    for (const tree of TREE_KEYS) {
      for (const [chain, rules] of trees[tree].render()) yield [TREES[tree].table, chain, rules];
    }
    for (const { rendered } of owners.values()) {
      for (const [chain, rules] of rendered.chains) yield ['nat', chain, rules];
    }
  }

  apply(diff(null, map));
  return {
    family,
    sets,
    apply(change, after) {
      current = after;
      return apply(change);
    },
    chains,
    render() {
      const out: Record<Table, Map<string, readonly Rule[]>> = { nat: new Map(), filter: new Map() };
      for (const [table, chain, rules] of chains()) out[table].set(chain, rules);
      return out;
    },
    locate: (tree, key) => trees[tree].locate(key),
    chainsOf: ({ owner, key }) =>
      owners.get(ownerKey(owner))?.rendered.frontends.get(key) ?? { firewall: null, classes: null },
    ownerOf(chain) {
      for (const [key, { rendered }] of owners) if (rendered.chains.has(chain)) return key;
      return null;
    },
  };
}

/** Edits the trees whose keys are addresses alone. Other text is left out: its frontends are reported. */
function editAddresses(
  { clusterIPs, hairpinAddresses }: Pick<Change, 'clusterIPs' | 'hairpinAddresses'>,
  edits: Edits,
  family: IPFamily,
  own: ReadonlySet<string>,
): void {
  const isOurs = (ip: string) => isOfFamily(ip, family) && !own.has(ip) && dispatchKey(ip) !== '';
  for (const [tree, { added, removed }, rulesOf] of [
    ['clusterIP', clusterIPs, rejectAddress],
    ['hairpin', hairpinAddresses, hairpinRules],
  ] as const) {
    for (const ip of removed) if (isOurs(ip)) edits[tree].set(dispatchKey(ip), null);
    for (const ip of added) if (isOurs(ip)) edits[tree].set(dispatchKey(ip), rulesOf(ip, family));
  }
}

function updateTrees(trees: Readonly<Record<TreeKey, DispatchTree>>, edits: Edits, out: RulesetChange): void {
  for (const tree of TREE_KEYS) {
    if (edits[tree].size === 0) continue;
    const { table } = TREES[tree];
    const { written, deleted } = trees[tree].update(edits[tree]);
    for (const [chain, rules] of written) out.written[table].set(chain, rules);
    for (const chain of deleted) out.deleted[table].push(chain);
  }
}

const NOTHING: ServiceChains = { chains: new Map(), sets: new Map(), entries: [], frontends: new Map() };

/** Returns "namespace/name:port/TCP". */
export const ownerKey = (owner: PortRef): string => `${portName(owner)}/${owner.protocol}`;

/** Renders the rules for other ports of a cluster IP. */
export const rejectAddress = (address: string, family: IPFamily): Rule[] =>
  rejectRules({ destination: hostNetwork(address) }, family);

/** Renders the mark of packets from an endpoint to itself. */
export function hairpinRules(address: string): Rule[] {
  const network = hostNetwork(address);
  return [rule({ source: network, destination: network }, jump(CHAIN.markMasquerade))];
}
