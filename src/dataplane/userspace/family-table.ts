import type { NftBatch } from '../../kernel/nftables/batch.ts';
import { TABLE_FLAG } from '../../kernel/nftables/constants.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { FrontendKey, NodeView } from '../../service/model.ts';
import type { ChainDefinition, Elements } from '../nf-table.ts';
import {
  clusterIPElement,
  frontendElements,
  isOfFamily,
  nodeElements,
  type ProgrammedFrontend,
  type SetElement,
} from './elements.ts';
import { createLayout, type Layout, TABLE } from './layout.ts';

/** What a family's table holds, all but what depends on the node. */
export interface TableContents {
  readonly frontends: Iterable<ProgrammedFrontend>;
  readonly listeners: Iterable<SetElement>;
  readonly clusterIPs: Iterable<string>;
}

/** A change of it: after is null for what is gone. */
export interface TableChange {
  readonly frontends: readonly { readonly key: FrontendKey; readonly after: ProgrammedFrontend | null }[];
  readonly listeners: { readonly added: readonly SetElement[]; readonly removed: readonly SetElement[] };
  readonly clusterIPs: { readonly added: readonly string[]; readonly removed: readonly string[] };
}

/**
 * One family's table as it is in the kernel. Methods only write into batches; when one is not committed, the object is
 * of no more use.
 */
export class FamilyTable {
  readonly family: IPFamily;
  readonly layout: Layout;
  readonly #node: NodeView;
  readonly #frontends = new Map<FrontendKey, ProgrammedFrontend>();
  readonly #listeners = new Map<string, SetElement>();
  readonly #clusterIPs = new Set<string>();

  constructor(family: IPFamily, node: NodeView) {
    this.family = family;
    this.#node = node;
    this.layout = createLayout(family, node);
  }

  /** The whole table, from nothing. `replace`: there is one now, which this one takes the place of. */
  create(
    batch: NftBatch,
    contents: TableContents,
    { owned, replace }: { owned: boolean; replace: boolean },
  ): void {
    if (replace) batch.deleteTable(TABLE);
    batch.addTable(TABLE, owned ? TABLE_FLAG.owner | TABLE_FLAG.persist : 0);
    for (const set of this.layout.sets) batch.addSet(TABLE, set);
    for (const { name, base } of this.layout.chains) batch.addChain(TABLE, name, base);
    for (const { name, rules } of this.layout.chains) {
      for (const rule of rules) batch.addRule(TABLE, name, rule);
    }
    for (const state of contents.frontends) this.#frontends.set(state.frontend.key, state);
    for (const element of contents.listeners) this.#listeners.set(element.id, element);
    for (const ip of contents.clusterIPs) if (isOfFamily(ip, this.family)) this.#clusterIPs.add(ip);
    // Set by set, so that the elements of one share messages.
    const bySet = new Map<string, SetElement[]>();
    for (const element of this.#elements()) {
      const list = bySet.get(element.set);
      if (list) list.push(element);
      else bySet.set(element.set, [element]);
    }
    for (const elements of bySet.values()) for (const element of elements) add(batch, element);
  }

  change(batch: NftBatch, change: TableChange): void {
    const before: SetElement[] = [];
    const after: SetElement[] = [];
    for (const { key, after: next } of change.frontends) {
      const old = this.#frontends.get(key);
      if (old) before.push(...frontendElements(old));
      if (next) {
        this.#frontends.set(key, next);
        after.push(...frontendElements(next));
      } else this.#frontends.delete(key);
    }
    for (const element of change.listeners.removed) {
      if (this.#listeners.delete(element.id)) before.push(element);
    }
    for (const element of change.listeners.added) {
      if (this.#listeners.has(element.id)) before.push(element);
      this.#listeners.set(element.id, element);
      after.push(element);
    }
    for (const ip of change.clusterIPs.removed) {
      if (this.#clusterIPs.delete(ip)) before.push(clusterIPElement(ip, this.family));
    }
    for (const ip of change.clusterIPs.added) {
      if (!isOfFamily(ip, this.family) || this.#clusterIPs.has(ip)) continue;
      this.#clusterIPs.add(ip);
      after.push(clusterIPElement(ip, this.family));
    }
    writeDifference(batch, before, after);
  }

  get frontends(): ReadonlyMap<FrontendKey, ProgrammedFrontend> {
    return this.#frontends;
  }

  get chains(): ReadonlyMap<string, ChainDefinition> {
    return new Map(this.layout.chains.map((chain) => [chain.name, chain]));
  }

  /** All elements that the kernel must have. */
  expected(): Elements {
    const sets = new Map<string, Map<string, string>>();
    for (const { name } of this.layout.sets) sets.set(name, new Map());
    for (const { set, id, value } of this.#elements()) sets.get(set)?.set(id.slice(set.length + 1), value);
    return sets;
  }

  *#elements(): Generator<SetElement> {
    yield* nodeElements(this.#node, this.family);
    for (const state of this.#frontends.values()) yield* frontendElements(state);
    yield* this.#listeners.values();
    for (const ip of this.#clusterIPs) yield clusterIPElement(ip, this.family);
  }
}

/** Deletes first: an element that changes only its value has the key of the one before. */
function writeDifference(batch: NftBatch, before: readonly SetElement[], after: readonly SetElement[]): void {
  const old = new Map(before.map((element) => [element.id, element]));
  const fresh = after.filter((element) => {
    const same = old.get(element.id);
    if (same?.value !== element.value || same.element.comment !== element.element.comment) return true;
    old.delete(element.id);
    return false;
  });
  const bySet = (a: SetElement, b: SetElement) => (a.set < b.set ? -1 : a.set > b.set ? 1 : 0);
  for (const { set, element } of [...old.values()].sort(bySet)) {
    const { key, keyEnd } = element;
    batch.deleteElement(TABLE, set, { key, ...(keyEnd ? { keyEnd } : {}) });
  }
  for (const element of fresh.sort(bySet)) add(batch, element);
}

function add(batch: NftBatch, { set, element }: SetElement): void {
  batch.addElement(TABLE, set, element);
}
