import { ElementBuffer } from '../../kernel/bpf/element-buffer.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Change, Endpoint, Frontend, FrontendKey, Protocol, ServiceMap } from '../../service/model.ts';
import { poolsOf } from '../../service/pools.ts';
import { BACKEND_KEY_WORDS, BackendNumbers } from './backend-numbers.ts';
import {
  ENDPOINT_WORDS,
  FRONTEND_KEY_WORDS,
  FRONTEND_WORDS,
  memberKey,
  memberValue,
  protocolOfKey,
  writeKey,
  writeSlot,
} from './entries.ts';
import { BACKEND, MAPS, MEMBER, MEMBERSHIP } from './generated/layout.ts';
import { maglevTable } from './maglev.ts';
import type { MapContents } from './map-contents.ts';
import type { Sink, WrittenMap } from './map-sink.ts';
import type { Capacity } from './maps.ts';
import {
  bytesOfText,
  type Entry,
  keyBytes,
  memberKeys,
  type Placed,
  type PlacedRoute,
  sameWords,
  textOf,
  valueBytes,
  writeEntry,
  writeFrontendKey,
} from './placed-frontend.ts';
import { collidingEndpoint, hasMembers, isFrontend, planOf, type RoutePlan } from './plan.ts';
import { type Run, SlotAllocator } from './slot-allocator.ts';

/** The maps are too small: larger ones must be created. */
export class CapacityExceeded extends Error {}

/**
 * The contents of the maps: frontends, their runs of slots and the numbers of their endpoints. Turns
 * changes of frontends into writes, ordered so that no program sees a partial change: slots and members
 * first, then frontends, then deletions.
 */
export class ForwardingTable {
  readonly capacity: Capacity;
  /** Frontends that cannot be written, with the reason. */
  readonly failed = new Map<FrontendKey, Error>();
  readonly #entries = new Map<FrontendKey, Entry>();
  readonly #slots: SlotAllocator;
  readonly #numbers: BackendNumbers;
  /** Frontends left to nf_tables because one of their endpoints is a frontend itself. */
  readonly #colliding = new Set<FrontendKey>();
  /** Ids of frontends that an earlier process assigned: affinity entries refer to them. */
  #adoptedIds = new Map<string, number>();
  #nextId = 1;
  /** Distinguishes endpoints that successively have the same number, across restarts too. */
  #generation: number;
  #operations = 0;
  /** Scratch: the key of one endpoint. */
  readonly #key = new Uint32Array(BACKEND_KEY_WORDS);
  /** Scratch: key and value of one frontend. */
  readonly #words = new Uint32Array(FRONTEND_KEY_WORDS + FRONTEND_WORDS);
  readonly #slotWrites = new ElementBuffer(1, ENDPOINT_WORDS, 1024);
  readonly #memberWrites = new ElementBuffer(MEMBER.size / 4, MEMBERSHIP.size / 4);
  readonly #backendWrites = new ElementBuffer(1, BACKEND.size / 4);
  readonly #frontendWrites = new ElementBuffer(FRONTEND_KEY_WORDS, FRONTEND_WORDS);
  readonly #removedWrites = new ElementBuffer(BACKEND_KEY_WORDS, 1);
  #frontendDeletes: Uint8Array[] = [];
  #memberDeletes: Uint8Array[] = [];
  /** Members in the map, including those that the next write deletes. */
  #memberCount = 0;
  /** Keys of removed UDP endpoints that sockets may still be connected to, the most recent last. */
  readonly #removed = new Set<string>();
  /** Keys that were added to `#removed`, or deleted from it, since the last write. */
  readonly #removedChanges = new Set<string>();

  /** `isFresh`: the maps were just created. */
  constructor(capacity: Capacity, clock: Clock, isFresh: boolean) {
    this.capacity = capacity;
    this.#slots = new SlotAllocator(capacity.endpoints, clock);
    this.#numbers = new BackendNumbers(capacity.backends, isFresh);
    this.#generation = Math.trunc(clock.now() / 1000) >>> 0;
  }

  /** Whether sockets may be connected to removed endpoints. */
  get hasRemovedBackends(): boolean {
    return this.#removed.size > 0;
  }

  /** Returns true if an endpoint with this number is in use. */
  usesBackend(number: number): boolean {
    return this.#numbers.isUsed(number);
  }

  entry(key: FrontendKey): Entry | undefined {
    return this.#entries.get(key);
  }

  /**
   * Writes everything into maps whose contents are `found`. Runs in use stay untouched until no frontend
   * refers to them; frontends and endpoints keep their numbers.
   */
  fill(map: ServiceMap, found: MapContents, sink: Sink): void {
    const released: Run[] = [];
    for (const run of found.runs) if (this.#slots.reserve(run)) released.push(run);
    this.#numbers.adopt(found.backends);
    this.#memberCount = found.members.length;
    // Allocated once instead of growing.
    this.#slotWrites.reserve(countSlots(map));
    for (const key of found.removedBackends) this.#removed.add(textOf(key));
    this.#adoptedIds = new Map([...found.frontends].map(([key, { id }]) => [key, id]));
    this.#nextId = this.#adoptedIds.values().reduce((max, id) => Math.max(max, id), 0) + 1;
    // The search goes through the frontends, since there are fewer of them than endpoints.
    for (const frontend of map.frontends.values()) this.#set(frontend, null);
    for (const frontend of map.frontends.values()) this.#replan(frontend, map);
    this.#adoptedIds = new Map();
    if (found.frontends.size > 0) {
      const wanted = new Set([...this.#entries.values()].map((entry) => textOf(this.#keyOf(entry))));
      for (const text of found.frontends.keys()) {
        if (!wanted.has(text)) this.#frontendDeletes.push(bytesOfText(text));
      }
    }
    for (const key of found.members) this.#memberDeletes.push(key);
    for (const number of this.#numbers.dropUnused()) this.#removeBackend(number);
    this.#write(sink);
    this.#slotWrites.trim();
    for (const run of released) this.#slots.release(run);
  }

  /** Writes a change of the Service map. */
  apply(change: Change, map: ServiceMap, sink: Sink): void {
    for (const { key, after } of change.frontends) {
      if (after) this.#set(after, (endpoint) => isFrontend(endpoint, after, map));
      else {
        this.#colliding.delete(key);
        this.failed.delete(key);
        this.#delete(key);
      }
    }
    for (const { before, after } of change.frontends) {
      if (before && after) continue;
      const frontend = after ?? before;
      if (frontend) this.#replan(frontend, map);
    }
    this.#write(sink);
  }

  /**
   * Returns the contents that the maps should have: slots by index, frontends and members by key in latin1.
   */
  expected(): { frontends: Map<string, Uint8Array>; slots: Map<number, Uint8Array>; members: Set<string> } {
    const frontends = new Map<string, Uint8Array>();
    const slots = new Map<number, Uint8Array>();
    const members = new Set<string>();
    for (const entry of this.#entries.values()) {
      writeEntry(this.#words, entry);
      frontends.set(textOf(keyBytes(this.#words)), valueBytes(this.#words));
      for (const { placed } of [entry.pod, entry.node]) {
        if (!placed) continue;
        const words = new Uint32Array(placed.slots.length * ENDPOINT_WORDS);
        this.#writeSlots(words, 0, placed, entry.frontend, entry.id);
        for (let i = 0; i < placed.slots.length; i++) {
          const at = i * ENDPOINT_WORDS * 4;
          slots.set(placed.run.first + i, new Uint8Array(words.buffer, at, ENDPOINT_WORDS * 4));
        }
        for (const key of memberKeys(placed)) members.add(textOf(key));
      }
    }
    return { frontends, slots, members };
  }

  #set(frontend: Frontend, isFrontend: ((endpoint: Endpoint) => boolean) | null): void {
    const { key } = frontend;
    this.failed.delete(key);
    try {
      this.#place(frontend, isFrontend);
    } catch (error) {
      if (error instanceof CapacityExceeded || !(error instanceof FairleadError)) throw error;
      this.failed.set(key, error);
      this.#delete(key);
    }
  }

  #place(frontend: Frontend, isFrontend: ((endpoint: Endpoint) => boolean) | null): void {
    const { key, address } = frontend;
    const plan = planOf(frontend, isFrontend);
    const before = this.#entries.get(key);
    if (plan?.collides) this.#colliding.add(key);
    else this.#colliding.delete(key);
    if (!plan || plan.isEmpty || address === null) {
      this.#delete(key);
      return;
    }
    // Throws for an invalid address, before anything is allocated.
    writeFrontendKey(this.#words, frontend);
    const id = before?.id ?? this.#idOf(frontend);
    const pod = this.#placeRoute(frontend, plan.pod, id, before, null);
    const node = this.#placeRoute(frontend, plan.node, id, before, pod.placed);
    const entry: Entry = { frontend, id, pod, node };
    this.#entries.set(key, entry);
    if (!before) {
      writeEntry(this.#words, entry);
      this.#frontendWrites.addWords(this.#words);
      if (this.#entries.size > this.capacity.frontends) throw new CapacityExceeded();
      return;
    }
    writeEntry(this.#words, before);
    const words = this.#words.slice();
    writeEntry(this.#words, entry);
    if (!sameWords(words, this.#words)) this.#frontendWrites.addWords(this.#words);
    this.#releaseRuns(before, new Set([pod.placed, node.placed]));
  }

  /** Finds or creates the run of a route. `made`: the run of the frontend's other route. */
  #placeRoute(
    frontend: Frontend,
    { endpoints, spared, action }: RoutePlan,
    id: number,
    before: Entry | undefined,
    made: Placed | null,
  ): PlacedRoute {
    if (endpoints.length === 0) return { entry: { action, first: 0, count: 0 }, placed: null };
    const isFor = (placed: Placed | null | undefined): placed is Placed =>
      placed?.endpoints === endpoints &&
      placed.spared === spared &&
      placed.hasMembers === hasMembers(frontend);
    const isLike = before?.frontend.options.balance === frontend.options.balance;
    let placed: Placed;
    if (isLike && isFor(before?.pod.placed)) placed = before.pod.placed;
    else if (isLike && isFor(before?.node.placed)) placed = before.node.placed;
    else if (isFor(made)) placed = made;
    else placed = this.#newRun(frontend, endpoints, spared, id);
    return { entry: { action, first: placed.run.first, count: placed.slots.length }, placed };
  }

  #delete(key: FrontendKey): void {
    const before = this.#entries.get(key);
    if (!before) return;
    this.#entries.delete(key);
    this.#frontendDeletes.push(this.#keyOf(before).slice());
    this.#releaseRuns(before, new Set());
  }

  /** Returns the bytes of a frontend's key, valid until the next call. */
  #keyOf(entry: Pick<Entry, 'frontend'>): Uint8Array {
    writeFrontendKey(this.#words, entry.frontend);
    return keyBytes(this.#words);
  }

  #newRun(
    frontend: Frontend,
    endpoints: readonly Endpoint[],
    spared: readonly Endpoint[],
    id: number,
  ): Placed {
    const slots = frontend.options.balance === 'maglev' ? maglevTable(endpoints) : endpoints;
    const run = this.#slots.allocate(slots.length);
    if (!run) throw new CapacityExceeded();
    const { family, protocol } = frontend;
    const numbers: number[] = [];
    const placed: Placed = { run, slots, endpoints, spared, numbers, hasMembers: hasMembers(frontend) };
    const index = this.#slotWrites.add(slots.length);
    try {
      for (let i = 0; i < endpoints.length; i++) {
        const endpoint = endpoints[i];
        if (!endpoint) continue;
        const number = this.#acquire(family, endpoint, protocol);
        numbers.push(number);
        if (slots === endpoints) {
          writeSlot(this.#slotWrites.values, (index + i) * ENDPOINT_WORDS, this.#key, id, number);
        }
      }
      // In use, so that connected sockets keep them.
      for (const endpoint of spared) numbers.push(this.#acquire(family, endpoint, protocol));
      // A Maglev table contains each endpoint many times, in a different order.
      if (slots !== endpoints)
        this.#writeSlots(this.#slotWrites.values, index * ENDPOINT_WORDS, placed, frontend, id);
    } catch (error) {
      this.#slotWrites.count = index;
      this.#release(placed, false);
      throw error;
    }
    for (let i = 0; i < slots.length; i++) this.#slotWrites.keys[index + i] = run.first + i;
    if (placed.hasMembers) {
      this.#memberCount += numbers.length;
      if (this.#memberCount > this.capacity.members) throw new CapacityExceeded();
      for (const [i, endpoint] of [...endpoints, ...spared].entries()) {
        const key = memberKey(run.first, endpoint);
        this.#memberWrites.addBytes(key, memberValue(numbers[i] ?? 0, i >= endpoints.length));
      }
    }
    return placed;
  }

  /** Returns the number of an endpoint, and leaves its key in `#key`. */
  #acquire(family: IPFamily, endpoint: Endpoint, protocol: Protocol): number {
    writeKey(this.#key, 0, family, endpoint, protocol);
    const number = this.#numbers.acquire(this.#key, 0);
    if (number < 0) throw new CapacityExceeded();
    if (this.#removed.size > 0) this.#restoreBackend(this.#key);
    return number;
  }

  #writeSlots(
    words: Uint32Array,
    at: number,
    { slots, endpoints, numbers }: Placed,
    { family, protocol }: Frontend,
    id: number,
  ): void {
    const places = slots === endpoints ? null : new Map(endpoints.map((endpoint, i) => [endpoint, i]));
    const key = new Uint32Array(BACKEND_KEY_WORDS);
    for (const [i, endpoint] of slots.entries()) {
      writeKey(key, 0, family, endpoint, protocol);
      const number = numbers[places ? (places.get(endpoint) ?? 0) : i] ?? 0;
      writeSlot(words, at + i * ENDPOINT_WORDS, key, id, number);
    }
  }

  #releaseRuns({ pod, node }: Entry, kept: ReadonlySet<Placed | null>): void {
    for (const placed of new Set([pod.placed, node.placed])) {
      if (!placed || kept.has(placed)) continue;
      for (const key of memberKeys(placed)) this.#memberDeletes.push(key);
      this.#release(placed);
    }
  }

  /**
   * Releases a run and its endpoints. `served`: sockets may be connected to endpoints that are not used
   * elsewhere.
   */
  #release({ run, numbers }: Placed, served = true): void {
    this.#slots.release(run);
    for (const number of numbers) if (this.#numbers.release(number) && served) this.#removeBackend(number);
  }

  #removeBackend(number: number): void {
    const words = this.#numbers.wordsOf(number);
    if (protocolOfKey(words) !== PROTOCOL_NUMBER.UDP) return;
    const key = textOf(new Uint8Array(words.buffer));
    this.#removed.delete(key);
    this.#removed.add(key);
    this.#removedChanges.add(key);
  }

  #restoreBackend(words: Uint32Array): void {
    const key = textOf(new Uint8Array(words.buffer));
    if (this.#removed.delete(key)) this.#removedChanges.add(key);
  }

  #writeRemoved(sink: Sink): void {
    for (const key of this.#removed) {
      if (this.#removed.size <= MAPS.removed_backends.maxEntries) break;
      this.#removed.delete(key);
      this.#removedChanges.add(key);
    }
    const dropped: Uint8Array[] = [];
    for (const key of this.#removedChanges) {
      if (this.#removed.has(key)) this.#removedWrites.addBytes(bytesOfText(key), new Uint8Array(4));
      else dropped.push(bytesOfText(key));
    }
    this.#operations += this.#removedChanges.size;
    this.#removedChanges.clear();
    sink.write('removed_backends', this.#removedWrites);
    sink.delete('removed_backends', dropped);
  }

  #idOf(frontend: Frontend): number {
    if (this.#adoptedIds.size === 0) return this.#nextId++;
    return this.#adoptedIds.get(textOf(this.#keyOf({ frontend }))) ?? this.#nextId++;
  }

  /** Replans frontends that have an endpoint whose address and port are, or were, this frontend's. */
  #replan(collided: Frontend, map: ServiceMap): void {
    const endpoint = collidingEndpoint(collided, map);
    if (!endpoint) return;
    const { family, protocol } = collided;
    try {
      writeKey(this.#key, 0, family, endpoint, protocol);
    } catch {
      // An invalid address, already reported by `#set`.
      return;
    }
    // All frontends are searched only if one of them has such an endpoint.
    const isUsed = this.#numbers.find(this.#key, 0) >= 0;
    if (!isUsed && this.#colliding.size === 0) return;
    for (const key of new Set([...(isUsed ? this.#entries.keys() : []), ...this.#colliding])) {
      const frontend = map.frontends.get(key);
      if (frontend?.family !== family || frontend.protocol !== protocol) continue;
      if (hasEndpoint(frontend, endpoint)) this.#set(frontend, (one) => isFrontend(one, frontend, map));
    }
  }

  /** Returns the number of elements written and deleted since the last call. */
  takeOperations(): number {
    const count = this.#operations;
    this.#operations = 0;
    return count;
  }

  #write(sink: Sink): void {
    for (const number of this.#numbers.takeReused()) {
      const index = this.#backendWrites.add(1);
      this.#backendWrites.keys[index] = number;
      this.#backendWrites.values[(index * BACKEND.size + BACKEND.generation) / 4] = this.#generation++;
    }
    const writes = {
      backends: this.#backendWrites,
      endpoints: this.#slotWrites,
      members: this.#memberWrites,
      frontends: this.#frontendWrites,
    };
    for (const [map, elements] of Object.entries(writes)) {
      this.#operations += elements.count;
      sink.write(map as WrittenMap, elements);
    }
    this.#operations += this.#frontendDeletes.length + this.#memberDeletes.length;
    sink.delete('frontends', this.#frontendDeletes);
    sink.delete('members', this.#memberDeletes);
    this.#memberCount -= this.#memberDeletes.length;
    this.#frontendDeletes = [];
    this.#memberDeletes = [];
    // Last: flows from a removed endpoint have to find the new ones.
    if (this.#removedChanges.size > 0) this.#writeRemoved(sink);
  }
}

function countSlots(map: ServiceMap): number {
  let count = 0;
  for (const { routes } of map.frontends.values()) {
    if (routes.pod.action === 'forward') count += routes.pod.pool.endpoints.length;
  }
  return count;
}

function hasEndpoint(frontend: Frontend, wanted: { readonly ip: string; readonly port: number }): boolean {
  const isWanted = ({ ip, port }: Endpoint) => port === wanted.port && ip === wanted.ip;
  return poolsOf(frontend).some((pool) => pool.endpoints.some(isWanted) || pool.spared?.some(isWanted));
}
