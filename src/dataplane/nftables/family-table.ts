import type { ElementVerdict, NftBatch } from '../../kernel/nftables/batch.ts';
import { TABLE_FLAG } from '../../kernel/nftables/constants.ts';
import type { DumpedElement } from '../../kernel/nftables/dump.ts';
import type { IPFamily } from '../../lib/address.ts';
import { bytesOf, hexOf } from '../../nft/encoding.ts';
import type { Change, Endpoint, Frontend, FrontendKey, NodeView, ServiceMap } from '../../service/model.ts';
import type { ChainDefinition, Elements } from '../nf-table.ts';
import { AddressSets } from './address-sets.ts';
import { EndpointWords } from './endpoint-words.ts';
import {
  commentOf,
  type Entry,
  entriesOf,
  type FrontendState,
  keyingOf,
  rearranged,
  sameSlot,
  verdictText,
} from './entries.ts';
import { expectedTraits, hasTraits, writeTraits } from './frontend-traits.ts';
import {
  createLayout,
  endpointMap,
  frontendMap,
  type Layout,
  type Pick,
  pickChain,
  stickySet,
  TABLE,
} from './layout.ts';
import { RegisterKeys } from './register-keys.ts';
import { type Forgotten, noteForgotten, restoreClients } from './remembered-clients.ts';
import { SizedSets } from './sized-sets.ts';

/** About what an endpoint and a frontend take in a transaction. */
const SLOT_BYTES = 64;
const FRONTEND_BYTES = 200;

export interface CreateOptions {
  readonly owned: boolean;
  /** There is a table now, which this one takes the place of. */
  readonly replace: boolean;
  /** Frontends to leave out since the kernel refused them before, and how. */
  readonly refused?: ReadonlyMap<FrontendKey, Error>;
  /** Refusals are to be laid to frontends. */
  readonly named?: boolean;
}

/**
 * One family's table as it is in the kernel, and the transactions that change it. Methods only write into batches;
 * when the kernel refuses one, or it is not committed, the object is of no more use.
 */
export class FamilyTable {
  readonly family: IPFamily;
  /** The table's name. */
  readonly name: string;
  readonly layout: Layout;
  readonly keys: RegisterKeys;
  readonly #frontends = new Map<FrontendKey, FrontendState>();
  readonly #sets: SizedSets;
  readonly #addresses: AddressSets;
  readonly #endpoints: EndpointWords;
  readonly #chains = new Map<string, ChainDefinition>();
  readonly #timeouts = new Set<number>();
  readonly #failed = new Map<FrontendKey, Error>();
  /** Slots that nothing leads to any more, kept for packets that are under way. */
  #stale: { readonly set: string; readonly head: Uint32Array; readonly from: number; readonly to: number }[] =
    [];

  constructor(family: IPFamily, node: NodeView, name: string = TABLE) {
    this.family = family;
    this.name = name;
    this.layout = createLayout(family, node);
    this.keys = new RegisterKeys(family);
    this.#sets = new SizedSets(name);
    this.#addresses = new AddressSets(name, node, this.keys, this.#sets);
    this.#endpoints = new EndpointWords(family);
  }

  /** Frontends that could not be encoded; the others are programmed. */
  get failed(): ReadonlyMap<FrontendKey, Error> {
    return this.#failed;
  }

  get hasStale(): boolean {
    return this.#stale.length > 0;
  }

  /** The whole table, from nothing. */
  create(batch: NftBatch, map: ServiceMap, options: CreateOptions): void {
    const { refused, named = false } = options;
    if (options.replace) batch.deleteTable(this.name);
    batch.addTable(this.name, options.owned ? TABLE_FLAG.owner | TABLE_FLAG.persist : 0);
    const counts = new Map<string, number>();
    const need = (set: string, count: number) => counts.set(set, (counts.get(set) ?? 0) + count);
    const states: FrontendState[] = [];
    for (const frontend of map.frontends.values()) {
      if (frontend.family !== this.family) continue;
      const error = refused?.get(frontend.key);
      if (error) {
        this.#fail(frontend.key, error);
        continue;
      }
      const state = this.#readFrontend(frontend);
      if (!state) continue;
      states.push(state);
      for (const entry of state.entries) {
        need(frontendMap(keyingOf(frontend), entry.scope), 1);
        if (entry.pick) need(endpointMap(entry.pick), entry.slots.length);
      }
      if (frontend.allowedSources) need('restricted', 1);
      if (frontend.affinitySeconds !== null) need(stickySet(keyingOf(frontend), frontend.affinitySeconds), 1);
    }
    let slots = 0;
    for (const state of states) for (const entry of state.entries) slots += entry.slots.length;
    batch.reserve(slots * SLOT_BYTES + states.length * FRONTEND_BYTES);
    const clusterIPs = [...map.clusterIPs.keys()].filter((ip) => this.keys.isOurs(ip));
    const hairpin = [...map.hairpinAddresses].filter((ip) => this.keys.isOurs(ip));
    need('cluster-ips', clusterIPs.length);
    need('hairpin', hairpin.length);
    for (const set of this.layout.sets) this.#sets.add(batch, set, counts.get(set.name) ?? 0);
    for (const chain of this.layout.chains) {
      batch.addChain(this.name, chain.name, chain.base);
      this.#chains.set(chain.name, chain);
    }
    for (const chain of this.layout.chains) this.#addRules(batch, chain);
    for (const state of states) {
      for (const { pick } of state.entries) if (pick) this.#ensurePick(batch, pick, counts);
      const { affinitySeconds } = state.frontend;
      if (affinitySeconds !== null) this.#ensureTimeout(batch, affinitySeconds, counts);
    }
    this.#addresses.addFixed(batch);
    this.#addresses.add(batch, 'cluster-ips', clusterIPs);
    this.#addresses.add(batch, 'hairpin', hairpin);
    // By map, so that elements of one map share messages.
    for (const state of states) this.#frontends.set(state.frontend.key, state);
    this.#fillSlots(batch, states, named);
    for (const state of states) {
      if (named) batch.writeFor(state.frontend.key);
      for (const entry of state.entries) this.#setVerdict(batch, state, entry, true);
    }
    for (const state of states) {
      if (named) batch.writeFor(state.frontend.key);
      this.#setTraits(batch, state, null);
    }
    if (named) batch.writeFor(null);
    this.#endpoints.forget();
  }

  /**
   * Writes a change. Throws TableFull when a map is too small for it. Returns the clients to forget once it is
   * committed.
   */
  change(batch: NftBatch, change: Change): Forgotten {
    const forgotten: Forgotten = new Map();
    this.removeStale(batch);
    for (const { key, before, after } of change.frontends) {
      if ((before ?? after)?.family !== this.family) continue;
      this.#failed.delete(key);
      const old = this.#frontends.get(key) ?? null;
      const next = after ? this.#readFrontend(after) : null;
      if (old) noteForgotten(forgotten, old.frontend, next?.frontend ?? null);
      this.#replace(batch, old, next);
    }
    this.#addresses.add(batch, 'cluster-ips', change.clusterIPs.added);
    this.#addresses.remove(batch, 'cluster-ips', change.clusterIPs.removed);
    this.#addresses.add(batch, 'hairpin', change.hairpinAddresses.added);
    this.#addresses.remove(batch, 'hairpin', change.hairpinAddresses.removed);
    this.#endpoints.forget();
    return forgotten;
  }

  /** Deletes slots that earlier changes left for packets under way. */
  removeStale(batch: NftBatch): void {
    const stale = this.#stale;
    this.#stale = [];
    for (const { set, head, from, to } of stale) {
      for (let slot = from; slot < to; slot++) this.#deleteSlot(batch, set, head, slot);
    }
  }

  /** Chains that must be there, with their rules. */
  get chains(): ReadonlyMap<string, ChainDefinition> {
    return this.#chains;
  }

  entries(key: FrontendKey): readonly Entry[] {
    return this.#frontends.get(key)?.entries ?? [];
  }

  /**
   * All elements that the kernel must have, by set: key (hex) → data (hex) or verdict. Without the clients that are
   * remembered, which only the kernel knows.
   */
  expected(): Elements {
    const sets = new Map<string, Map<string, string>>();
    for (const name of this.#sets.names) sets.set(name, new Map());
    const put = (set: string, key: ArrayLike<number>, value: string) => {
      const elements = sets.get(set) ?? new Map<string, string>();
      elements.set(hexOf(bytesOf(key)), value);
      sets.set(set, elements);
    };
    for (const state of this.#frontends.values()) {
      const { frontend, head, entries } = state;
      for (const entry of entries) {
        put(frontendMap(keyingOf(frontend), entry.scope), head, verdictText(entry));
        if (!entry.pick) continue;
        const set = endpointMap(entry.pick);
        for (const [slot, endpoint] of entry.slots.entries()) {
          put(set, [...head, slot], hexOf(bytesOf(this.keys.endpoint(endpoint))));
        }
      }
      expectedTraits(state, this.keys, put);
    }
    for (const { set, head, from, to } of this.#stale) {
      for (let slot = from; slot < to; slot++) sets.get(set)?.set(hexOf(bytesOf([...head, slot])), '*');
    }
    this.#addresses.expected(put);
    return sets;
  }

  /** Of the clients that an earlier table remembered, those whose frontend and endpoint are there still. */
  restoreAffinity(batch: NftBatch, elements: readonly DumpedElement[]): void {
    restoreClients(batch, this.name, this.keys, this.#frontends.values(), elements);
  }

  /** A frontend as it is going to be, or null (and noted as failed) when it cannot be encoded. */
  #readFrontend(frontend: Frontend): FrontendState | null {
    try {
      const head = this.keys.head(frontend);
      const entries = entriesOf(frontend, this.layout.hasPods);
      // Before anything of it is written: a transaction cannot take back a part.
      for (const { slots } of entries) this.#endpoints.read(slots);
      return { frontend, head, entries };
    } catch (error) {
      this.#fail(frontend.key, error);
      return null;
    }
  }

  #fail(key: FrontendKey, error: unknown): void {
    this.#failed.set(key, error instanceof Error ? error : new Error(String(error)));
  }

  #addRules(batch: NftBatch, chain: ChainDefinition): void {
    for (const rule of chain.rules) batch.addRule(this.name, chain.name, rule);
  }

  #ensurePick(batch: NftBatch, pick: Pick, counts?: ReadonlyMap<string, number>): void {
    if (this.#chains.has(pickChain(pick))) return;
    const map = endpointMap(pick);
    if (!this.#sets.has(map)) {
      const definition = { name: map, key: this.layout.key(pick.keying, true), data: this.layout.endpoint };
      this.#sets.add(batch, definition, counts?.get(map) ?? pick.size * 16);
    }
    for (const chain of this.layout.pickChains(pick)) {
      if (this.#chains.has(chain.name)) continue;
      batch.addChain(this.name, chain.name);
      this.#addRules(batch, chain);
      this.#chains.set(chain.name, chain);
    }
  }

  #ensureTimeout(batch: NftBatch, seconds: number, counts?: ReadonlyMap<string, number>): void {
    if (this.#timeouts.has(seconds)) return;
    this.#timeouts.add(seconds);
    for (const keying of ['address', 'port'] as const) {
      const name = stickySet(keying, seconds);
      this.#sets.add(batch, { name, key: this.layout.key(keying) }, counts?.get(name) ?? 0);
    }
    const rules = this.layout.rememberRules(seconds);
    for (const rule of rules) batch.addRule(this.name, 'remember', rule);
    const before = this.#chains.get('remember')?.rules ?? [];
    this.#chains.set('remember', { name: 'remember', rules: [...before, ...rules] });
  }

  /** All slots of all frontends, map by map. */
  #fillSlots(batch: NftBatch, states: readonly FrontendState[], named: boolean): void {
    const byMap = new Map<string, { state: FrontendState; entry: Entry }[]>();
    for (const state of states) {
      for (const entry of state.entries) {
        if (!entry.pick) continue;
        const map = endpointMap(entry.pick);
        const list = byMap.get(map);
        if (list) list.push({ state, entry });
        else byMap.set(map, [{ state, entry }]);
      }
    }
    for (const [map, list] of byMap) {
      for (const { state, entry } of list) {
        if (named) batch.writeFor(state.frontend.key);
        this.#addSlots(batch, map, state.head, entry.slots, 0, entry.slots.length);
      }
    }
  }

  #addSlots(
    batch: NftBatch,
    set: string,
    head: Uint32Array,
    slots: readonly Endpoint[],
    from: number,
    to: number,
  ): void {
    const start = this.#endpoints.read(slots);
    const { words, width } = this.#endpoints;
    for (let slot = from; slot < to; slot++) {
      batch.addMapElement(this.name, set, head, slot, words, start + slot * width, width);
    }
    this.#sets.count(set, to - from);
  }

  #deleteSlot(batch: NftBatch, set: string, head: Uint32Array, slot: number): void {
    const key = new Uint32Array(head.length + 1);
    key.set(head);
    key[head.length] = slot;
    batch.deleteElement(this.name, set, { key });
    this.#sets.count(set, -1);
  }

  #setVerdict(batch: NftBatch, { frontend, head }: FrontendState, entry: Entry, on: boolean): void {
    const set = frontendMap(keyingOf(frontend), entry.scope);
    this.#sets.count(set, on ? 1 : -1);
    const verdict: ElementVerdict = entry.pick
      ? { goto: pickChain(entry.pick) }
      : entry.verdict === 'drop'
        ? 'drop'
        : { goto: 'reject' };
    if (on) batch.addElement(this.name, set, { key: head, verdict, comment: commentOf(frontend) });
    else batch.deleteElement(this.name, set, { key: head });
  }

  #setTraits(batch: NftBatch, state: FrontendState | null, before: FrontendState | null): void {
    if (!hasTraits(state) && !hasTraits(before)) return;
    const ensureTimeout = (seconds: number) => this.#ensureTimeout(batch, seconds);
    const { name: table, keys } = this;
    writeTraits({ batch, table, keys, sets: this.#sets, ensureTimeout }, state, before);
  }

  #replace(batch: NftBatch, old: FrontendState | null, next: FrontendState | null): void {
    if (old && !next) this.#frontends.delete(old.frontend.key);
    if (next) this.#frontends.set(next.frontend.key, next);
    const head = (next ?? old)?.head;
    if (!head) return;
    const before = new Map(old?.entries.map((entry) => [entry.scope, entry]));
    if (next) {
      next.entries = next.entries.map((entry) => {
        const was = before.get(entry.scope);
        before.delete(entry.scope);
        return this.#replaceEntry(batch, old, next, was ?? null, entry);
      });
    }
    for (const gone of before.values()) {
      if (!old) continue;
      this.#setVerdict(batch, old, gone, false);
      this.#retire(gone, head, 0);
    }
    this.#setTraits(batch, next, old);
  }

  /** Slots that lead nowhere any more stay until a later transaction. */
  #retire(entry: Entry, head: Uint32Array, from: number): void {
    if (!entry.pick || from >= entry.slots.length) return;
    this.#stale.push({ set: endpointMap(entry.pick), head, from, to: entry.slots.length });
  }

  #replaceEntry(
    batch: NftBatch,
    old: FrontendState | null,
    state: FrontendState,
    was: Entry | null,
    entry: Entry,
  ): Entry {
    let placed = entry;
    if (entry.pick) {
      this.#ensurePick(batch, entry.pick);
      const map = endpointMap(entry.pick);
      if (was?.pick && endpointMap(was.pick) === map) {
        placed = { ...entry, slots: rearranged(was.slots, entry.slots) };
        this.#moveSlots(batch, map, state.head, was.slots, placed.slots);
      } else {
        this.#addSlots(batch, map, state.head, entry.slots, 0, entry.slots.length);
        if (was) this.#retire(was, state.head, 0);
      }
    } else if (was) this.#retire(was, state.head, 0);
    const same =
      was &&
      old &&
      verdictText(was) === verdictText(entry) &&
      commentOf(old.frontend) === commentOf(state.frontend);
    if (!same) {
      if (was && old) this.#setVerdict(batch, old, was, false);
      this.#setVerdict(batch, state, entry, true);
    }
    return placed;
  }

  #moveSlots(
    batch: NftBatch,
    map: string,
    head: Uint32Array,
    before: readonly Endpoint[],
    after: readonly Endpoint[],
  ): void {
    for (let slot = 0; slot < Math.max(before.length, after.length); slot++) {
      const [old, next] = [before[slot], after[slot]];
      if (old && next && sameSlot(old, next)) continue;
      if (old) this.#deleteSlot(batch, map, head, slot);
      if (next) this.#addSlots(batch, map, head, after, slot, slot + 1);
    }
  }
}
