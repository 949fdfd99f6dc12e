import type { ElementVerdict, NftBatch, SetDefinition } from '../../kernel/nftables/batch.ts';
import { TABLE_FLAG } from '../../kernel/nftables/constants.ts';
import type { DumpedElement } from '../../kernel/nftables/dump.ts';
import type { IPFamily } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Change, Endpoint, Frontend, FrontendKey, NodeView, ServiceMap } from '../../service/model.ts';
import { mergedRanges, outermost, successor } from '../address-ranges.ts';
import type { Keying } from '../nf-matches.ts';
import type { ChainDefinition, Elements } from '../nf-table.ts';
import { addressWords, be16Port, bytesOf, hexOf, PROTOCOL_NUMBER, wordsOf, writeAddress } from '../words.ts';
import { commentOf, type Entry, entriesOf, keyingOf, rearranged, sameSlot, slotKey } from './entries.ts';
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

/** About what an endpoint and a frontend take in a transaction. */
const SLOT_BYTES = 64;
const FRONTEND_BYTES = 200;
/** Of endpoints as words, between transactions. */
const KEPT_WORDS = 4096;
/** Maps of fixed size have room for half as much again, and for this many. */
const LEAST_SIZE = 256;

/** A fixed-size map has no room for what a change adds: the table must be written anew. */
export class TableFull extends Error {}

interface FrontendState {
  readonly frontend: Frontend;
  readonly head: Uint32Array;
  entries: readonly Entry[];
}

interface SizedSet {
  readonly definition: SetDefinition;
  readonly size: number;
  count: number;
}

export interface CreateOptions {
  readonly owned: boolean;
  /** There is a table now, which this one takes the place of. */
  readonly replace: boolean;
  /** Frontends to leave out since the kernel refused them before, and how. */
  readonly refused?: ReadonlyMap<FrontendKey, Error>;
  /** Refusals are to be laid to frontends. */
  readonly named?: boolean;
}

/** Clients that must not come back to where they were: by frontend, and which endpoints (`slotKey`; null: all). */
export type Forgotten = Map<Frontend, ReadonlySet<string> | null>;

/**
 * One family's table as it is in the kernel, and the transactions that change it. Methods only write into batches;
 * when the kernel refuses one, or it is not committed, the object is of no more use.
 */
export class FamilyTable {
  readonly family: IPFamily;
  /** The table's name. */
  readonly name: string;
  readonly layout: Layout;
  readonly #node: NodeView;
  readonly #words: 1 | 4;
  readonly #frontends = new Map<FrontendKey, FrontendState>();
  readonly #sized = new Map<string, SizedSet>();
  readonly #chains = new Map<string, ChainDefinition>();
  readonly #timeouts = new Set<number>();
  readonly #hairpin = new Set<string>();
  readonly #clusterIPs = new Set<string>();
  readonly #failed = new Map<FrontendKey, Error>();
  /** Slots that nothing leads to any more, kept for packets that are under way. */
  #stale: { readonly set: string; readonly head: Uint32Array; readonly from: number; readonly to: number }[] =
    [];
  /** While a transaction is written: endpoints as words, and where in there each list begins. */
  #endpoints = new Uint32Array(KEPT_WORDS);
  #endpointsEnd = 0;
  readonly #lists = new Map<readonly Endpoint[], number>();

  constructor(family: IPFamily, node: NodeView, name: string = TABLE) {
    this.family = family;
    this.name = name;
    this.#node = node;
    this.#words = addressWords(family);
    this.layout = createLayout(family, node);
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
    const clusterIPs = [...map.clusterIPs.keys()].filter((ip) => this.#isOurs(ip));
    const hairpin = [...map.hairpinAddresses].filter((ip) => this.#isOurs(ip));
    need('cluster-ips', clusterIPs.length);
    need('hairpin', hairpin.length);
    for (const set of this.layout.sets) this.#addSet(batch, set, counts.get(set.name) ?? 0);
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
    this.#fixedElements(batch);
    for (const ip of clusterIPs) this.#setAddress(batch, 'cluster-ips', this.#clusterIPs, ip, true);
    for (const ip of hairpin) this.#setAddress(batch, 'hairpin', this.#hairpin, ip, true);
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
    this.#forgetEndpoints();
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
      if (old) forget(forgotten, old.frontend, next?.frontend ?? null);
      this.#replace(batch, old, next);
    }
    for (const ip of change.clusterIPs.added) {
      if (this.#isOurs(ip)) this.#setAddress(batch, 'cluster-ips', this.#clusterIPs, ip, true);
    }
    for (const ip of change.clusterIPs.removed) {
      if (this.#isOurs(ip)) this.#setAddress(batch, 'cluster-ips', this.#clusterIPs, ip, false);
    }
    for (const ip of change.hairpinAddresses.added) {
      if (this.#isOurs(ip)) this.#setAddress(batch, 'hairpin', this.#hairpin, ip, true);
    }
    for (const ip of change.hairpinAddresses.removed) {
      if (this.#isOurs(ip)) this.#setAddress(batch, 'hairpin', this.#hairpin, ip, false);
    }
    this.#forgetEndpoints();
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

  chain(name: string): ChainDefinition | undefined {
    return this.#chains.get(name);
  }

  /** Chains that must be there, with their rules. */
  get chains(): ReadonlyMap<string, ChainDefinition> {
    return this.#chains;
  }

  get setNames(): Iterable<string> {
    return this.#sized.keys();
  }

  entries(key: FrontendKey): readonly Entry[] {
    return this.#frontends.get(key)?.entries ?? [];
  }

  /** The first words of a frontend's keys, in the order of `layout.key`. */
  head(frontend: Frontend): Uint32Array {
    const words = frontend.address === null ? 0 : this.#words;
    const head = new Uint32Array(words + 2);
    if (frontend.address !== null) writeAddress(frontend.address, this.family, head, 0);
    head[words] = PROTOCOL_NUMBER[frontend.protocol];
    head[words + 1] = be16Port(frontend.port);
    return head;
  }

  endpointWords(endpoint: Endpoint): Uint32Array {
    const words = new Uint32Array(this.#words + 1);
    writeAddress(endpoint.ip, this.family, words, 0);
    words[this.#words] = be16Port(endpoint.port);
    return words;
  }

  /**
   * All elements that the kernel must have, by set: key (hex) → data (hex) or verdict. Without the clients that are
   * remembered, which only the kernel knows.
   */
  expected(): Elements {
    const sets = new Map<string, Map<string, string>>();
    for (const name of this.#sized.keys()) sets.set(name, new Map());
    const put = (set: string, key: ArrayLike<number>, value: string) => {
      const elements = sets.get(set) ?? new Map<string, string>();
      elements.set(hexOf(bytesOf(key)), value);
      sets.set(set, elements);
    };
    for (const { frontend, head, entries } of this.#frontends.values()) {
      const keying = keyingOf(frontend);
      for (const entry of entries) {
        put(frontendMap(keying, entry.scope), head, verdictText(entry));
        if (!entry.pick) continue;
        const set = endpointMap(entry.pick);
        for (const [slot, endpoint] of entry.slots.entries()) {
          put(set, [...head, slot], hexOf(bytesOf(this.endpointWords(endpoint))));
        }
      }
      if (frontend.affinitySeconds !== null) put(stickySet(keying, frontend.affinitySeconds), head, '');
      if (frontend.allowedSources) put('restricted', head, '');
      for (const { first, last } of outermost(frontend.allowedSources ?? [], this.family)) {
        put('allowed-sources', [...head, ...wordsOf(first)], hexOf(bytesOf([...head, ...wordsOf(last)])));
      }
    }
    for (const { set, head, from, to } of this.#stale) {
      for (let slot = from; slot < to; slot++) sets.get(set)?.set(hexOf(bytesOf([...head, slot])), '*');
    }
    const address = (ip: string, times = 1) => {
      const words = new Uint32Array(this.#words * times);
      for (let i = 0; i < times; i++) writeAddress(ip, this.family, words, i * this.#words);
      return words;
    };
    for (const ip of this.#clusterIPs) put('cluster-ips', address(ip), '');
    for (const ip of this.#hairpin) put('hairpin', address(ip, 2), '');
    for (const ip of this.#node.ownServiceAddresses)
      if (this.#isOurs(ip)) put('own-addresses', address(ip), '');
    for (const [set, ranges] of this.#networks()) {
      for (const { first, last } of ranges) {
        put(set, wordsOf(first), 'start');
        const end = successor(last);
        if (end) put(set, wordsOf(end), 'end');
      }
    }
    return sets;
  }

  /** Of the clients that an earlier table remembered, those whose frontend and endpoint are there still. */
  restoreAffinity(batch: NftBatch, elements: readonly DumpedElement[]): void {
    const valid = new Map<string, { seconds: number; endpoints: Set<string> }>();
    for (const { frontend, head, entries } of this.#frontends.values()) {
      if (frontend.affinitySeconds === null) continue;
      const endpoints = new Set(
        entries.flatMap((entry) => entry.slots.map((e) => hexOf(bytesOf(this.endpointWords(e))))),
      );
      valid.set(hexOf(bytesOf(head)), { seconds: frontend.affinitySeconds, endpoints });
    }
    const words = this.#words * 4;
    for (const { key, data, timeoutMs, expiresMs } of elements) {
      if (!data || expiresMs === 0) continue;
      const found = valid.get(hexOf(key.subarray(words))) ?? valid.get(hexOf(key.subarray(2 * words)));
      if (!found?.endpoints.has(hexOf(data))) continue;
      const limit = found.seconds * 1000;
      batch.addElement(this.name, 'affinity', {
        key: wordsOf(key),
        data: wordsOf(data),
        timeoutMs: Math.min(timeoutMs, limit),
        expiresMs: Math.min(expiresMs, limit),
      });
    }
  }

  /** Which remembered clients must be forgotten. */
  forgetful(forgotten: Forgotten): (element: DumpedElement) => boolean {
    const byHead = new Map<string, ReadonlySet<string> | null>();
    for (const [frontend, endpoints] of forgotten) {
      byHead.set(
        hexOf(bytesOf(this.head(frontend))),
        endpoints && new Set([...endpoints].map((e) => this.#dataHex(e))),
      );
    }
    const words = this.#words * 4;
    return ({ key, data }) => {
      for (const from of [words, 2 * words]) {
        const endpoints = byHead.get(hexOf(key.subarray(from)));
        if (endpoints === null || (endpoints && data && endpoints.has(hexOf(data)))) return true;
      }
      return false;
    };
  }

  #dataHex(key: string): string {
    const [ip = '', port = ''] = key.split(' ');
    const words = new Uint32Array(this.#words + 1);
    writeAddress(ip, this.family, words, 0);
    words[this.#words] = be16Port(Number(port));
    return hexOf(bytesOf(words));
  }

  #isOurs(address: string): boolean {
    return address.includes(':') === (this.family === 'ipv6');
  }

  /** A frontend as it is going to be, or null (and noted as failed) when it cannot be encoded. */
  #readFrontend(frontend: Frontend): FrontendState | null {
    try {
      const head = this.head(frontend);
      const entries = entriesOf(frontend, this.layout.hasPods);
      // Before anything of it is written: a transaction cannot take back a part.
      for (const { slots } of entries) this.#readEndpoints(slots);
      return { frontend, head, entries };
    } catch (error) {
      this.#fail(frontend.key, error);
      return null;
    }
  }

  #fail(key: FrontendKey, error: unknown): void {
    this.#failed.set(key, error instanceof Error ? error : new Error(String(error)));
  }

  #addSet(batch: NftBatch, definition: SetDefinition, count: number): void {
    const fixed = definition.size !== undefined || definition.interval;
    // A quarter of a million clients or networks that grow by rules and by ranges are not ours to count.
    const size = fixed ? (definition.size ?? 0) : roomFor(count);
    batch.addSet(this.name, fixed ? definition : { ...definition, size });
    this.#sized.set(definition.name, { definition, size: fixed ? Number.POSITIVE_INFINITY : size, count: 0 });
  }

  #addRules(batch: NftBatch, chain: ChainDefinition): void {
    for (const rule of chain.rules) batch.addRule(this.name, chain.name, rule);
  }

  #ensurePick(batch: NftBatch, pick: Pick, counts?: ReadonlyMap<string, number>): void {
    if (this.#chains.has(pickChain(pick))) return;
    const map = endpointMap(pick);
    if (!this.#sized.has(map)) {
      const definition = { name: map, key: this.layout.key(pick.keying, true), data: this.layout.endpoint };
      this.#addSet(batch, definition, counts?.get(map) ?? pick.size * 16);
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
      this.#addSet(batch, { name, key: this.layout.key(keying) }, counts?.get(name) ?? 0);
    }
    const rules = this.layout.rememberRules(seconds);
    for (const rule of rules) batch.addRule(this.name, 'remember', rule);
    const before = this.#chains.get('remember')?.rules ?? [];
    this.#chains.set('remember', { name: 'remember', rules: [...before, ...rules] });
  }

  #networks() {
    const { serviceCidrs, nodePortAddresses } = this.#node;
    const ports = nodePortAddresses[this.family];
    return [
      ['service-networks', mergedRanges(serviceCidrs, this.family)],
      ['nodeport-networks', mergedRanges(ports.all ? [] : ports.cidrs, this.family)],
    ] as const;
  }

  #fixedElements(batch: NftBatch): void {
    for (const [set, ranges] of this.#networks()) {
      for (const { first, last } of ranges) {
        batch.addElement(this.name, set, { key: wordsOf(first) });
        const end = successor(last);
        if (end) batch.addElement(this.name, set, { key: wordsOf(end), intervalEnd: true });
      }
    }
    for (const ip of new Set(this.#node.ownServiceAddresses)) {
      if (!this.#isOurs(ip)) continue;
      const key = new Uint32Array(this.#words);
      writeAddress(ip, this.family, key, 0);
      batch.addElement(this.name, 'own-addresses', { key });
    }
  }

  #setAddress(
    batch: NftBatch,
    set: 'cluster-ips' | 'hairpin',
    known: Set<string>,
    ip: string,
    on: boolean,
  ): void {
    if (known.has(ip) === on) return;
    const times = set === 'hairpin' ? 2 : 1;
    const key = new Uint32Array(this.#words * times);
    try {
      for (let i = 0; i < times; i++) writeAddress(ip, this.family, key, i * this.#words);
    } catch {
      // No packet has such an address; the frontends that it stands in are reported.
      return;
    }
    this.#count(set, on ? 1 : -1);
    if (on) {
      known.add(ip);
      batch.addElement(this.name, set, { key });
    } else {
      known.delete(ip);
      batch.deleteElement(this.name, set, { key });
    }
  }

  #count(set: string, by: number): void {
    const sized = this.#sized.get(set);
    if (!sized)
      throw new FairleadError(`there is no set ${set}`, { op: 'program nf_tables', code: 'ENOENT' });
    sized.count += by;
    if (sized.count > sized.size) throw new TableFull(set);
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
    const width = this.#words + 1;
    const start = this.#readEndpoints(slots);
    for (let slot = from; slot < to; slot++) {
      batch.addMapElement(this.name, set, head, slot, this.#endpoints, start + slot * width, width);
    }
    this.#count(set, to - from);
  }

  /** Where in `#endpoints` the addresses and ports of a list of endpoints begin; read once for each list. */
  #readEndpoints(slots: readonly Endpoint[]): number {
    const known = this.#lists.get(slots);
    if (known !== undefined) return known;
    const width = this.#words + 1;
    const start = this.#endpointsEnd;
    const end = start + slots.length * width;
    if (end > this.#endpoints.length) {
      const grown = new Uint32Array(end * 2);
      grown.set(this.#endpoints.subarray(0, start));
      this.#endpoints = grown;
    }
    let at = start;
    for (const { ip, port } of slots) {
      writeAddress(ip, this.family, this.#endpoints, at);
      this.#endpoints[at + this.#words] = be16Port(port);
      at += width;
    }
    this.#endpointsEnd = end;
    this.#lists.set(slots, start);
    return start;
  }

  #forgetEndpoints(): void {
    this.#lists.clear();
    this.#endpointsEnd = 0;
    if (this.#endpoints.length > KEPT_WORDS) this.#endpoints = new Uint32Array(KEPT_WORDS);
  }

  #deleteSlot(batch: NftBatch, set: string, head: Uint32Array, slot: number): void {
    const key = new Uint32Array(head.length + 1);
    key.set(head);
    key[head.length] = slot;
    batch.deleteElement(this.name, set, { key });
    this.#count(set, -1);
  }

  #setVerdict(batch: NftBatch, { frontend, head }: FrontendState, entry: Entry, on: boolean): void {
    const set = frontendMap(keyingOf(frontend), entry.scope);
    this.#count(set, on ? 1 : -1);
    const verdict: ElementVerdict = entry.pick
      ? { goto: pickChain(entry.pick) }
      : entry.verdict === 'drop'
        ? 'drop'
        : { goto: 'reject' };
    if (on) batch.addElement(this.name, set, { key: head, verdict, comment: commentOf(frontend) });
    else batch.deleteElement(this.name, set, { key: head });
  }

  /** Affinity and source ranges: what a frontend has besides its routes. Null: gone, or not there before. */
  #setTraits(batch: NftBatch, state: FrontendState | null, before: FrontendState | null): void {
    if (!hasTraits(state) && !hasTraits(before)) return;
    const head = (state ?? before)?.head;
    const keying: Keying = (state ?? before)?.frontend.address === null ? 'port' : 'address';
    if (!head) return;
    const [oldSeconds, seconds] = [
      before?.frontend.affinitySeconds ?? null,
      state?.frontend.affinitySeconds ?? null,
    ];
    if (oldSeconds !== seconds) {
      if (oldSeconds !== null) {
        batch.deleteElement(this.name, stickySet(keying, oldSeconds), { key: head });
        this.#count(stickySet(keying, oldSeconds), -1);
      }
      if (seconds !== null) {
        this.#ensureTimeout(batch, seconds);
        batch.addElement(this.name, stickySet(keying, seconds), { key: head });
        this.#count(stickySet(keying, seconds), 1);
      }
    }
    const ranges = (of: FrontendState | null) => outermost(of?.frontend.allowedSources ?? [], this.family);
    const text = (range: { first: Uint8Array; last: Uint8Array }) =>
      `${hexOf(range.first)}-${hexOf(range.last)}`;
    const old = new Map(ranges(before).map((range) => [text(range), range]));
    const next = new Map(ranges(state).map((range) => [text(range), range]));
    const element = ({ first, last }: { first: Uint8Array; last: Uint8Array }) => ({
      key: [...head, ...wordsOf(first)],
      keyEnd: [...head, ...wordsOf(last)],
    });
    for (const [key, range] of old)
      if (!next.has(key)) batch.deleteElement(this.name, 'allowed-sources', element(range));
    for (const [key, range] of next)
      if (!old.has(key)) batch.addElement(this.name, 'allowed-sources', element(range));
    const [was, is] = [before?.frontend.allowedSources ?? null, state?.frontend.allowedSources ?? null];
    if ((was === null) === (is === null)) return;
    this.#count('restricted', is ? 1 : -1);
    if (is) batch.addElement(this.name, 'restricted', { key: head });
    else batch.deleteElement(this.name, 'restricted', { key: head });
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

function hasTraits(state: FrontendState | null): boolean {
  return (
    state !== null && (state.frontend.affinitySeconds !== null || state.frontend.allowedSources !== null)
  );
}

export function verdictText(entry: Entry): string {
  if (entry.pick) return `goto ${pickChain(entry.pick)}`;
  return entry.verdict === 'drop' ? 'drop' : 'goto reject';
}

/** What a kernel that rounds up to powers of two has room for without waste. */
function roomFor(count: number): number {
  const wanted = Math.max(LEAST_SIZE, Math.ceil(count * 1.5));
  return 2 ** Math.ceil(Math.log2(wanted));
}

/** Notes the clients of endpoints that no longer serve a class of sources that they did serve. */
function forget(forgotten: Forgotten, before: Frontend, after: Frontend | null): void {
  if (before.affinitySeconds === null) return;
  if (!after || after.affinitySeconds === null) {
    forgotten.set(before, null);
    return;
  }
  const gone = new Set<string>();
  for (const source of ['pod', 'node', 'external'] as const) {
    const [old, now] = [before.routes[source], after.routes[source]];
    if (old.action !== 'forward' || old === now) continue;
    const serving = new Set(now.action === 'forward' ? now.pool.endpoints.map(slotKey) : []);
    for (const endpoint of old.pool.endpoints)
      if (!serving.has(slotKey(endpoint))) gone.add(slotKey(endpoint));
  }
  if (gone.size > 0) forgotten.set(before, gone);
}
