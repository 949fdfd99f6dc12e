import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Change, Endpoint, Frontend, FrontendKey, ServiceMap } from '../../service/model.ts';
import { BACKEND_KEY_WORDS, BackendNumbers } from './backend-numbers.ts';
import { ElementBuffer } from './element-buffer.ts';
import type { KernelContents } from './kernel-contents.ts';
import {
  BACKEND_SIZE,
  BALANCE,
  type Capacity,
  ENDPOINT_WORDS,
  FRONTEND_KEY_SIZE,
  FRONTEND_KEY_WORDS,
  FRONTEND_SIZE,
  FRONTEND_WORDS,
  GENERATION_AT,
  MEMBER_KEY_SIZE,
  MOST_DEPARTED,
  mappedAddress,
  memberKey,
  NO_FAILOVER,
  type RouteEntry,
  writeFrontend,
  writeKey,
  writeSlot,
} from './layout.ts';
import { maglevTable } from './maglev.ts';
import { collidingEndpoint, isFrontend, planOf, type RoutePlan } from './plan.ts';
import { type Run, SlotRuns } from './slot-runs.ts';

/** The maps are too small for what is wanted: larger ones have to be made. */
export class CapacityExceeded extends Error {}

/** Slots in use, with the endpoints that have numbers because of them. */
interface Placed {
  readonly run: Run;
  /** In the order of the slots. */
  readonly slots: readonly Endpoint[];
  readonly endpoints: readonly Endpoint[];
  /** Those of the endpoints, in their order. */
  readonly numbers: readonly number[];
  readonly sticky: boolean;
}

interface PlacedRoute {
  readonly entry: RouteEntry;
  readonly placed: Placed | null;
}

interface Entry {
  readonly frontend: Frontend;
  readonly id: number;
  readonly pod: PlacedRoute;
  readonly node: PlacedRoute;
}

/** Where the writes of one change go. */
export interface Sink {
  writeSlots(elements: ElementBuffer): void;
  writeMembers(elements: ElementBuffer): void;
  writeBackends(elements: ElementBuffer): void;
  writeFrontends(elements: ElementBuffer): void;
  deleteFrontends(keys: readonly Uint8Array[]): void;
  deleteMembers(keys: readonly Uint8Array[]): void;
  writeDeparted(keys: readonly Uint8Array[]): void;
  deleteDeparted(keys: readonly Uint8Array[]): void;
}

/**
 * What stands in the maps: which frontends, in which runs of slots, with which numbers. Turns frontends into writes in
 * an order in which no program ever meets half of a change: slots and members first, then frontends, then what nothing
 * leads to any more.
 */
export class ForwardingTable {
  readonly capacity: Capacity;
  /** Frontends that cannot be written, with the reason. */
  readonly failed = new Map<FrontendKey, Error>();
  readonly #entries = new Map<FrontendKey, Entry>();
  readonly #runs: SlotRuns;
  readonly #numbers: BackendNumbers;
  /** Frontends that are left to nf_tables because of an endpoint that is a frontend itself. */
  readonly #colliding = new Set<FrontendKey>();
  /** Numbers of frontends that an earlier process gave out: affinity goes by them. */
  #adoptedIds = new Map<string, number>();
  #nextId = 1;
  /** Tells the endpoints that have one number after the other apart, over restarts too. */
  #generation: number;
  #operations = 0;
  /** For one look-up. */
  readonly #key = new Uint32Array(BACKEND_KEY_WORDS);
  /** For one frontend: its key, then its value. */
  readonly #words = new Uint32Array(FRONTEND_KEY_WORDS + FRONTEND_WORDS);
  readonly #slots = new ElementBuffer(1, ENDPOINT_WORDS, 1024);
  readonly #members = new ElementBuffer(MEMBER_KEY_SIZE / 4, 1);
  readonly #backends = new ElementBuffer(1, BACKEND_SIZE / 4);
  readonly #frontends = new ElementBuffer(FRONTEND_KEY_SIZE / 4, FRONTEND_SIZE / 4);
  #goneFrontends: Uint8Array[] = [];
  #goneMembers: Uint8Array[] = [];
  /** Members in the map, those too that are deleted with the next write. */
  #memberCount = 0;
  /** Endpoints of datagrams that have left: sockets may be connected to them. The latest are the last. */
  readonly #departed = new Set<string>();
  /** Of these, those that are not written yet; and those that are none of them any more. */
  #left: string[] = [];
  #returned: string[] = [];

  /** `isFresh`: the maps have just been made. */
  constructor(capacity: Capacity, clock: Clock, isFresh: boolean) {
    this.capacity = capacity;
    this.#runs = new SlotRuns(capacity.endpoints, clock);
    this.#numbers = new BackendNumbers(capacity.backends, isFresh, capacity.backends);
    this.#generation = Math.trunc(clock.now() / 1000) >>> 0;
  }

  /** Sockets may be connected to endpoints that have left. */
  get hasDeparted(): boolean {
    return this.#departed.size > 0;
  }

  /** Whether an endpoint with this number is in use. */
  usesBackend(number: number): boolean {
    return this.#numbers.isUsed(number);
  }

  get size(): number {
    return this.#entries.size;
  }

  entry(key: FrontendKey): Entry | undefined {
    return this.#entries.get(key);
  }

  /**
   * Writes everything into maps that hold `found`: runs that are in use stay untouched until nothing leads to them,
   * frontends and endpoints keep their numbers.
   */
  fill(map: ServiceMap, found: KernelContents, sink: Sink): void {
    const released: Run[] = [];
    for (const run of found.runs) if (this.#runs.reserve(run)) released.push(run);
    this.#numbers.adopt(found.backends);
    this.#memberCount = found.members.length;
    // So that it does not grow, and is copied, many times. What is there now is not all of it later.
    this.#slots.reserve(countSlots(map));
    for (const key of found.departed) this.#departed.add(textOf(key));
    this.#adoptedIds = new Map([...found.frontends].map(([key, { id }]) => [key, id]));
    this.#nextId = Math.max(0, ...this.#adoptedIds.values()) + 1;
    // Endpoints that are frontends are found from the frontends, of which there are fewer.
    for (const frontend of map.frontends.values()) this.#set(frontend, null);
    for (const frontend of map.frontends.values()) this.#replan(frontend, map);
    this.#adoptedIds = new Map();
    if (found.frontends.size > 0) {
      const wanted = new Set([...this.#entries.values()].map((entry) => textOf(this.#keyOf(entry))));
      for (const text of found.frontends.keys()) {
        if (!wanted.has(text)) this.#goneFrontends.push(bytesOfText(text));
      }
    }
    for (const key of found.members) this.#goneMembers.push(key);
    for (const number of this.#numbers.dropUnused()) this.#depart(number);
    this.#write(sink);
    this.#slots.trim();
    for (const run of released) this.#runs.release(run);
  }

  /** Writes a change to the map of before. */
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

  /** Elements of the maps as they should be: slots by index, frontends and members by key. */
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
    // Before anything is placed: an address that is none fails here.
    writeFrontendKey(this.#words, frontend);
    const id = before?.id ?? this.#idOf(frontend);
    const pod = this.#placeRoute(frontend, plan.pod, id, before, null);
    const node = this.#placeRoute(frontend, plan.node, id, before, pod.placed);
    const entry: Entry = { frontend, id, pod, node };
    this.#entries.set(key, entry);
    if (!before) {
      writeEntry(this.#words, entry);
      this.#frontends.addWords(this.#words);
      if (this.#entries.size > this.capacity.frontends) throw new CapacityExceeded();
      return;
    }
    writeEntry(this.#words, before);
    const words = this.#words.slice();
    writeEntry(this.#words, entry);
    if (!sameWords(words, this.#words)) this.#frontends.addWords(this.#words);
    this.#releaseRuns(before, new Set([pod.placed, node.placed]));
  }

  /** `made`: what the frontend's other route has. */
  #placeRoute(
    frontend: Frontend,
    { endpoints, action }: RoutePlan,
    id: number,
    before: Entry | undefined,
    made: Placed | null,
  ): PlacedRoute {
    if (endpoints.length === 0) return { entry: { action, first: 0, count: 0 }, placed: null };
    const isFor = (placed: Placed | null | undefined): placed is Placed =>
      placed?.endpoints === endpoints && placed.sticky === (frontend.affinitySeconds !== null);
    const isLike = before?.frontend.options.balance === frontend.options.balance;
    let placed: Placed;
    if (isLike && isFor(before?.pod.placed)) placed = before.pod.placed;
    else if (isLike && isFor(before?.node.placed)) placed = before.node.placed;
    else if (isFor(made)) placed = made;
    else placed = this.#newRun(frontend, endpoints, id);
    return { entry: { action, first: placed.run.first, count: placed.slots.length }, placed };
  }

  #delete(key: FrontendKey): void {
    const before = this.#entries.get(key);
    if (!before) return;
    this.#entries.delete(key);
    this.#goneFrontends.push(this.#keyOf(before).slice());
    this.#releaseRuns(before, new Set());
  }

  /** Bytes of a frontend's key, until the next call. */
  #keyOf(entry: Pick<Entry, 'frontend'>): Uint8Array {
    writeFrontendKey(this.#words, entry.frontend);
    return keyBytes(this.#words);
  }

  #newRun(frontend: Frontend, endpoints: readonly Endpoint[], id: number): Placed {
    const slots = frontend.options.balance === 'maglev' ? maglevTable(endpoints) : endpoints;
    const run = this.#runs.allocate(slots.length);
    if (!run) throw new CapacityExceeded();
    const { family, protocol } = frontend;
    const numbers: number[] = [];
    const placed: Placed = { run, slots, endpoints, numbers, sticky: frontend.affinitySeconds !== null };
    const index = this.#slots.add(slots.length);
    try {
      for (let i = 0; i < endpoints.length; i++) {
        const endpoint = endpoints[i];
        if (!endpoint) continue;
        writeKey(this.#key, 0, family, endpoint, protocol);
        const number = this.#numbers.acquire(this.#key, 0);
        if (number < 0) throw new CapacityExceeded();
        numbers.push(number);
        if (this.#departed.size > 0) this.#return(this.#key);
        if (slots === endpoints) {
          writeSlot(this.#slots.values, (index + i) * ENDPOINT_WORDS, this.#key, id, number);
        }
      }
      // A Maglev table has each endpoint many times.
      if (slots !== endpoints)
        this.#writeSlots(this.#slots.values, index * ENDPOINT_WORDS, placed, frontend, id);
    } catch (error) {
      this.#slots.count = index;
      this.#release(placed, false);
      throw error;
    }
    for (let i = 0; i < slots.length; i++) this.#slots.keys[index + i] = run.first + i;
    if (placed.sticky) {
      this.#memberCount += endpoints.length;
      if (this.#memberCount > this.capacity.members) throw new CapacityExceeded();
      for (const [i, { ip, port }] of endpoints.entries()) {
        const key = memberKey(run.first, mappedAddress(ip), port);
        this.#members.addBytes(key, new Uint8Array(Uint32Array.of(numbers[i] ?? 0).buffer));
      }
    }
    return placed;
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
      this.#goneMembers.push(...memberKeys(placed));
      this.#release(placed);
    }
  }

  /** `served`: sockets may be connected to what has no other user now. */
  #release({ run, numbers }: Placed, served = true): void {
    this.#runs.release(run);
    for (const number of numbers) if (this.#numbers.release(number) && served) this.#depart(number);
  }

  #depart(number: number): void {
    const words = this.#numbers.wordsOf(number);
    if ((words[4] ?? 0) >>> 16 !== PROTOCOL_NUMBER.UDP) return;
    const key = textOf(new Uint8Array(words.buffer));
    this.#departed.delete(key);
    this.#departed.add(key);
    this.#left.push(key);
  }

  #return(words: Uint32Array): void {
    const key = textOf(new Uint8Array(words.buffer));
    if (this.#departed.delete(key)) this.#returned.push(key);
  }

  #writeDeparted(sink: Sink): void {
    for (const key of this.#departed) {
      if (this.#departed.size <= MOST_DEPARTED) break;
      this.#departed.delete(key);
      this.#returned.push(key);
    }
    const fresh = this.#left.filter((key) => this.#departed.has(key)).map(bytesOfText);
    const gone = this.#returned.filter((key) => !this.#departed.has(key)).map(bytesOfText);
    this.#left = [];
    this.#returned = [];
    this.#operations += fresh.length + gone.length;
    sink.writeDeparted(fresh);
    sink.deleteDeparted(gone);
  }

  #idOf(frontend: Frontend): number {
    if (this.#adoptedIds.size === 0) return this.#nextId++;
    return this.#adoptedIds.get(textOf(this.#keyOf({ frontend }))) ?? this.#nextId++;
  }

  /** Plans those frontends anew that have an endpoint which is, or was, this frontend too. */
  #replan(collided: Frontend, map: ServiceMap): void {
    const endpoint = collidingEndpoint(collided, map);
    if (!endpoint) return;
    const { family, protocol } = collided;
    try {
      writeKey(this.#key, 0, family, endpoint, protocol);
    } catch {
      // It failed already, and is reported: no endpoint can have that address.
      return;
    }
    // Those with the endpoint among their slots are searched for only where there are any.
    const isUsed = this.#numbers.find(this.#key, 0) >= 0;
    if (!isUsed && this.#colliding.size === 0) return;
    for (const key of new Set([...(isUsed ? this.#entries.keys() : []), ...this.#colliding])) {
      const frontend = map.frontends.get(key);
      if (frontend?.family !== family || frontend.protocol !== protocol) continue;
      if (hasEndpoint(frontend, endpoint)) this.#set(frontend, (one) => isFrontend(one, frontend, map));
    }
  }

  /** How many elements were written and deleted since the last call. */
  takeOperations(): number {
    const count = this.#operations;
    this.#operations = 0;
    return count;
  }

  #write(sink: Sink): void {
    for (const number of this.#numbers.takeReused()) {
      const index = this.#backends.add(1);
      this.#backends.keys[index] = number;
      this.#backends.values[(index * BACKEND_SIZE + GENERATION_AT) / 4] = this.#generation++;
    }
    this.#operations +=
      this.#backends.count +
      this.#slots.count +
      this.#members.count +
      this.#frontends.count +
      this.#goneFrontends.length +
      this.#goneMembers.length;
    sink.writeBackends(this.#backends);
    sink.writeSlots(this.#slots);
    sink.writeMembers(this.#members);
    sink.writeFrontends(this.#frontends);
    sink.deleteFrontends(this.#goneFrontends);
    sink.deleteMembers(this.#goneMembers);
    this.#memberCount -= this.#goneMembers.length;
    this.#goneFrontends = [];
    this.#goneMembers = [];
    // At last: who leaves an endpoint is to find the new ones.
    if (this.#left.length + this.#returned.length > 0) this.#writeDeparted(sink);
  }
}

/** Writes the key of a frontend that has an address. */
function writeFrontendKey(words: Uint32Array, { family, address, port, protocol }: Frontend): void {
  writeKey(words, 0, family, { ip: address ?? '', port }, protocol);
}

function writeEntry(words: Uint32Array, { frontend, id, pod, node }: Entry): void {
  const { affinitySeconds, options } = frontend;
  writeFrontendKey(words, frontend);
  writeFrontend(words, FRONTEND_KEY_WORDS, {
    id,
    affinitySeconds: affinitySeconds ?? 0,
    balance: BALANCE[options.balance] | (options.failover ? 0 : NO_FAILOVER),
    pod: pod.entry,
    node: node.entry,
  });
}

function countSlots(map: ServiceMap): number {
  let count = 0;
  for (const { routes } of map.frontends.values()) {
    if (routes.pod.action === 'forward') count += routes.pod.pool.endpoints.length;
  }
  return count;
}

function hasEndpoint({ routes }: Frontend, wanted: { readonly ip: string; readonly port: number }): boolean {
  return [routes.pod, routes.node].some(
    (route) =>
      route.action === 'forward' &&
      route.pool.endpoints.some(({ ip, port }) => port === wanted.port && ip === wanted.ip),
  );
}

function memberKeys({ run, endpoints, sticky }: Placed): Uint8Array[] {
  return sticky ? endpoints.map(({ ip, port }) => memberKey(run.first, mappedAddress(ip), port)) : [];
}

function sameWords(a: Uint32Array, b: Uint32Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

const keyBytes = ({ buffer }: Uint32Array): Uint8Array => new Uint8Array(buffer, 0, FRONTEND_KEY_SIZE);
/** A copy. */
const valueBytes = ({ buffer }: Uint32Array): Uint8Array => new Uint8Array(buffer, FRONTEND_KEY_SIZE).slice();
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');
const bytesOfText = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'));
