import type { IPFamily } from '../../lib/address.ts';
import { recordOf } from '../../lib/record-of.ts';
import type { Change, Frontend, FrontendKey, PortRef, ServiceMap } from '../../service/model.ts';
import { isOfFamily } from '../rules/address-elements.ts';
import { portName } from '../rules/frontend-keys.ts';
import { type BaseSettings, baseChains, TABLES, type Table } from './base-chains.ts';
import { CHAIN, TREE } from './chain-names.ts';
import { createDispatchTree, dispatchKey } from './dispatch-tree.ts';
import { hostNetwork, type Rule, rejectRules } from './rule.ts';
import {
  type AffinitySet,
  ENTRY_TREES,
  type ServiceChains,
  serviceChains,
  type TreeName,
} from './service-chains.ts';

/** Changes to write: chains with all their rules, and chains to delete. */
export interface RulesetChange {
  readonly written: Readonly<Record<Table, Map<string, readonly Rule[]>>>;
  readonly deleted: Readonly<Record<Table, string[]>>;
  readonly setsAdded: AffinitySet[];
  readonly setsRemoved: string[];
}

/** A service port's chains in the kernel. */
interface OwnerState {
  readonly frontends: Map<FrontendKey, Frontend>;
  /** Chain → its rules joined; for an endpoint's chain only the affinity: the rest follows from its name. */
  chains: Map<string, string>;
  sets: Map<string, AffinitySet>;
  keys: Record<TreeName, readonly string[]>;
}

export type TreeKey = TreeName | 'clusterIP';

export const TREES: Readonly<Record<TreeKey, { table: Table; prefix: string; addressed: boolean }>> = {
  address: { table: 'nat', prefix: TREE.address, addressed: true },
  nodePort: { table: 'nat', prefix: TREE.nodePort, addressed: false },
  rejectAddress: { table: 'filter', prefix: TREE.address, addressed: true },
  rejectExternal: { table: 'filter', prefix: TREE.externalAddress, addressed: true },
  rejectNodePort: { table: 'filter', prefix: TREE.nodePort, addressed: false },
  firewall: { table: 'filter', prefix: TREE.firewall, addressed: true },
  clusterIP: { table: 'filter', prefix: TREE.clusterIP, addressed: true },
};
const TREE_KEYS: readonly TreeKey[] = [...ENTRY_TREES, 'clusterIP'];

/** The rules of keys in each tree; null to remove. */
type Edits = Record<TreeKey, Map<string, readonly Rule[] | null>>;

/** The rules of one family for a ServiceMap, updated with it. */
export interface Ruleset {
  readonly family: IPFamily;
  /** Applies a change that does not affect the node. Returns the changed chains. */
  apply(change: Change, map: ServiceMap): RulesetChange;
  /** Renders every chain with its rules. */
  render(map: ServiceMap): Record<Table, Map<string, readonly Rule[]>>;
  /** Returns the same chains as an iterator, rendered on demand; the map must not change meanwhile. */
  chains(map: ServiceMap): Iterable<readonly [table: Table, chain: string, rules: readonly Rule[]]>;
  readonly sets: ReadonlyMap<string, AffinitySet>;
  /** Returns the service port ("namespace/name:port/TCP") that owns a chain. */
  ownerOf(chain: string): string | null;
  /**
   * Returns the dispatch chains that lead to a frontend, and its rules; null if it has none in this tree.
   */
  locate(
    tree: TreeName,
    key: string,
  ): { readonly chains: readonly string[]; readonly rules: readonly Rule[] } | null;
  /** Returns the rendered chains of a service port. */
  chainsOf(owner: PortRef, map: ServiceMap): ReadonlyMap<string, readonly Rule[]>;
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

  const mine = (frontend: Frontend | null): frontend is Frontend =>
    frontend?.family === family && !own.has(frontend.address ?? '');

  function emptyChange(): RulesetChange {
    return {
      written: { nat: new Map(), filter: new Map() },
      deleted: { nat: [], filter: [] },
      setsAdded: [],
      setsRemoved: [],
    };
  }

  function settings(current: ServiceMap): BaseSettings {
    return { node: current.node, family, healthChecks: [...current.healthChecks.values()], dropInvalid };
  }

  function ownerState(owner: PortRef): OwnerState {
    const key = ownerKey(owner);
    const known = owners.get(key);
    if (known) return known;
    const keys = recordOf(ENTRY_TREES, () => []);
    const fresh: OwnerState = { frontends: new Map(), chains: new Map(), sets: new Map(), keys };
    owners.set(key, fresh);
    return fresh;
  }

  const render = (state: OwnerState, current: ServiceMap): ServiceChains =>
    serviceChains([...state.frontends.values()], current.node, family, affinity);

  /** Updates the chains, sets and tree entries of one owner. */
  function refresh(key: string, current: ServiceMap, out: RulesetChange, edits: Edits): void {
    const state = owners.get(key);
    if (!state) return;
    const rendered = render(state, current);
    const chains = new Map<string, string>();
    for (const [chain, rules] of rendered.chains) {
      const signature = chain.startsWith('KUBE-SEP-') ? endpointSignature(rules) : rules.join('\n');
      chains.set(chain, signature);
      if (state.chains.get(chain) !== signature) out.written.nat.set(chain, rules);
    }
    for (const chain of state.chains.keys()) if (!chains.has(chain)) out.deleted.nat.push(chain);
    const wanted = new Map(rendered.sets.map((set) => [set.name, set]));
    for (const set of rendered.sets) {
      if (state.sets.has(set.name)) continue;
      out.setsAdded.push(set);
      sets.set(set.name, set);
    }
    for (const name of state.sets.keys()) {
      if (wanted.has(name)) continue;
      out.setsRemoved.push(name);
      sets.delete(name);
    }
    state.chains = chains;
    state.sets = wanted;
    for (const tree of ENTRY_TREES) {
      const entries = rendered.entries[tree];
      // A key that moves from one owner to another in this change may be set already.
      for (const old of state.keys[tree]) {
        if (!entries.has(old) && !edits[tree].has(old)) edits[tree].set(old, null);
      }
      for (const [entry, rules] of entries) edits[tree].set(entry, rules);
    }
    state.keys = recordOf(ENTRY_TREES, (tree) => [...rendered.entries[tree].keys()]);
    if (state.frontends.size === 0) owners.delete(key);
  }

  const noEdits = (): Edits => recordOf(TREE_KEYS, () => new Map());

  function clusterIPEdits(
    added: Iterable<string>,
    removed: Iterable<string>,
    edits: Edits['clusterIP'],
  ): void {
    for (const address of removed) {
      if (isOfFamily(address, family)) edits.set(dispatchKey(address), null);
    }
    for (const address of added) {
      if (!isOfFamily(address, family) || own.has(address)) continue;
      edits.set(dispatchKey(address), rejectRules({ destination: hostNetwork(address) }, family));
    }
  }

  function updateTrees(edits: Edits, out: RulesetChange): void {
    for (const tree of TREE_KEYS) {
      if (edits[tree].size === 0) continue;
      const { table } = TREES[tree];
      const { written, deleted } = trees[tree].update(edits[tree]);
      for (const [chain, rules] of written) out.written[table].set(chain, rules);
      for (const chain of deleted) out.deleted[table].push(chain);
    }
  }

  function* sharedChains(
    current: ServiceMap,
  ): Generator<readonly [table: Table, chain: string, rules: readonly Rule[]]> {
    const base = baseChains(settings(current));
    for (const table of TABLES) {
      for (const [chain, rules] of base[table]) yield [table, chain, rules];
    }
    for (const tree of TREE_KEYS) {
      for (const [chain, rules] of trees[tree].render()) yield [TREES[tree].table, chain, rules];
    }
  }

  function* chainsIn(
    current: ServiceMap,
  ): Generator<readonly [table: Table, chain: string, rules: readonly Rule[]]> {
    yield* sharedChains(current);
    for (const state of owners.values()) {
      for (const [chain, rules] of render(state, current).chains) yield ['nat', chain, rules];
    }
  }

  const initial = emptyChange();
  const edits = noEdits();
  for (const [key, frontend] of map.frontends) {
    if (mine(frontend)) ownerState(frontend.owner).frontends.set(key, frontend);
  }
  for (const key of [...owners.keys()]) refresh(key, map, initial, edits);
  clusterIPEdits(map.clusterIPs.keys(), [], edits.clusterIP);
  updateTrees(edits, initial);
  /** The chains of all owners, for the complete programming that follows; not kept after it. */
  let rendered: ReadonlyMap<string, readonly Rule[]> | null = initial.written.nat;

  return {
    family,
    sets,
    apply(change, current) {
      rendered = null;
      const out = emptyChange();
      const pending = noEdits();
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
      for (const key of dirty) refresh(key, current, out, pending);
      clusterIPEdits(change.clusterIPs.added, change.clusterIPs.removed, pending.clusterIP);
      updateTrees(pending, out);
      if (change.healthChecks.length > 0) {
        const rules = baseChains(settings(current)).filter.get(CHAIN.nodePorts);
        if (rules) out.written.filter.set(CHAIN.nodePorts, rules);
      }
      return out;
    },
    render(current) {
      const out: Record<Table, Map<string, readonly Rule[]>> = { nat: new Map(), filter: new Map() };
      const known = current === map ? rendered : null;
      for (const [table, chain, rules] of known ? sharedChains(current) : chainsIn(current))
        out[table].set(chain, rules);
      for (const [chain, rules] of known ?? []) out.nat.set(chain, rules);
      rendered = null;
      return out;
    },
    chains: chainsIn,
    locate: (tree, key) => trees[tree].locate(key),
    chainsOf(owner, current) {
      const state = owners.get(ownerKey(owner));
      return state ? render(state, current).chains : new Map();
    },
    ownerOf(chain) {
      for (const [key, state] of owners) if (state.chains.has(chain)) return key;
      return null;
    },
  };
}

/** Returns "namespace/name:port/TCP". */
export const ownerKey = (owner: PortRef): string => `${portName(owner)}/${owner.protocol}`;

/** Returns the part of an endpoint's chain that does not follow from its name. */
const endpointSignature = (rules: readonly Rule[]): string =>
  rules.find((line) => line.includes('--add-set')) ?? '';
