import type { Clock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Change, Endpoint, Frontend, FrontendKey, ServiceMap } from '../../service/model.ts';
import { BackendNumbers } from './backend-numbers.ts';
import { ElementBuffer } from './element-buffer.ts';
import type { KernelContents } from './kernel-contents.ts';
import {
  BACKEND_SIZE,
  BALANCE,
  type Capacity,
  ENDPOINT_WORDS,
  FRONTEND_KEY_SIZE,
  FRONTEND_SIZE,
  frontendKey,
  frontendValue,
  GENERATION_AT,
  MEMBER_KEY_SIZE,
  MOST_DEPARTED,
  mappedAddress,
  memberKey,
  NO_FAILOVER,
  type RouteEntry,
  writeEndpoint,
} from './layout.ts';
import { maglevTable } from './maglev.ts';
import { collidingEndpoint, planOf, type RoutePlan } from './plan.ts';
import { type Run, SlotRuns } from './slot-runs.ts';

/** The maps are too small for what is wanted: larger ones have to be made. */
export class CapacityExceeded extends Error {}

/** Slots in use, with the endpoints that have numbers because of them. */
interface Placed {
  readonly run: Run;
  /** In the order of the slots. */
  readonly slots: readonly Endpoint[];
  readonly endpoints: readonly Endpoint[];
  readonly sticky: boolean;
}

interface PlacedRoute {
  readonly entry: RouteEntry;
  readonly placed: Placed | null;
}

interface Entry {
  readonly frontend: Frontend;
  readonly id: number;
  readonly key: Uint8Array;
  readonly value: Uint8Array;
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
  readonly #slots = new ElementBuffer(1, ENDPOINT_WORDS, 1024);
  readonly #members = new ElementBuffer(MEMBER_KEY_SIZE / 4, 1);
  readonly #backends = new ElementBuffer(1, BACKEND_SIZE / 4);
  readonly #frontends = new ElementBuffer(FRONTEND_KEY_SIZE / 4, FRONTEND_SIZE / 4);
  #goneFrontends: Uint8Array[] = [];
  #goneMembers: Uint8Array[] = [];
  /** Endpoints of datagrams that have left: sockets may be connected to them. The latest are the last. */
  readonly #departed = new Set<string>();
  /** Of these, those that are not written yet; and those that are none of them any more. */
  #left: string[] = [];
  #returned: string[] = [];

  constructor(capacity: Capacity, clock: Clock) {
    this.capacity = capacity;
    this.#runs = new SlotRuns(capacity.endpoints, clock);
    this.#numbers = new BackendNumbers(capacity.backends);
    this.#generation = Math.trunc(clock.now() / 1000) >>> 0;
  }

  /** Sockets may be connected to endpoints that have left. */
  get hasDeparted(): boolean {
    return this.#departed.size > 0;
  }

  get size(): number {
    return this.#entries.size;
  }

  entry(key: FrontendKey): Entry | undefined {
    return this.#entries.get(key);
  }

  /** The number of an endpoint in the map of how endpoints fare; null when no frontend uses it. */
  backendNumber(key: string): number | null {
    return this.#numbers.numberOf(key);
  }

  /**
   * Writes everything into maps that hold `found`: runs that are in use stay untouched until nothing leads to them,
   * frontends and endpoints keep their numbers.
   */
  fill(map: ServiceMap, found: KernelContents, sink: Sink): void {
    const released: Run[] = [];
    for (const run of found.runs) if (this.#runs.reserve(run)) released.push(run);
    this.#numbers.adopt(found.backends);
    for (const key of found.departed) this.#departed.add(key);
    this.#adoptedIds = new Map([...found.frontends].map(([key, { id }]) => [key, id]));
    this.#nextId = Math.max(0, ...this.#adoptedIds.values()) + 1;
    for (const frontend of map.frontends.values()) this.#set(frontend, map);
    this.#adoptedIds = new Map();
    const wanted = new Set([...this.#entries.values()].map(({ key }) => Buffer.from(key).toString('latin1')));
    for (const [text] of found.frontends) {
      if (!wanted.has(text)) this.#goneFrontends.push(new Uint8Array(Buffer.from(text, 'latin1')));
    }
    this.#goneMembers.push(...found.members);
    for (const key of this.#numbers.dropUnused()) this.#depart(key);
    this.#write(sink);
    for (const run of released) this.#runs.release(run);
  }

  /** Writes a change to the map of before. */
  apply(change: Change, map: ServiceMap, sink: Sink): void {
    for (const { key, after } of change.frontends) {
      if (after) this.#set(after, map);
      else {
        this.#colliding.delete(key);
        this.failed.delete(key);
        this.#delete(key);
      }
    }
    for (const { before, after } of change.frontends) {
      if (before && after) continue;
      const frontend = after ?? before;
      const endpoint = frontend && collidingEndpoint(frontend, map);
      if (endpoint) this.#replan(endpoint, map);
    }
    this.#write(sink);
  }

  /** Elements of the maps as they should be: slots by index, frontends and members by key. */
  expected(): { frontends: Map<string, Entry>; slots: Map<number, Uint8Array>; members: Set<string> } {
    const frontends = new Map<string, Entry>();
    const slots = new Map<number, Uint8Array>();
    const members = new Set<string>();
    for (const entry of this.#entries.values()) {
      frontends.set(Buffer.from(entry.key).toString('latin1'), entry);
      for (const { placed } of [entry.pod, entry.node]) {
        if (!placed) continue;
        const words = new Uint32Array(placed.slots.length * ENDPOINT_WORDS);
        this.#writeSlots(words, 0, placed.slots, entry.frontend, entry.id);
        for (let i = 0; i < placed.slots.length; i++) {
          const at = i * ENDPOINT_WORDS * 4;
          slots.set(placed.run.first + i, new Uint8Array(words.buffer, at, ENDPOINT_WORDS * 4));
        }
        for (const key of memberKeys(placed)) members.add(Buffer.from(key).toString('latin1'));
      }
    }
    return { frontends, slots, members };
  }

  #set(frontend: Frontend, map: ServiceMap): void {
    const { key } = frontend;
    this.failed.delete(key);
    try {
      this.#place(frontend, map);
    } catch (error) {
      if (error instanceof CapacityExceeded || !(error instanceof FairleadError)) throw error;
      this.failed.set(key, error);
      this.#delete(key);
    }
  }

  #place(frontend: Frontend, map: ServiceMap): void {
    const { key, address, port, protocol, affinitySeconds } = frontend;
    const plan = planOf(frontend, map);
    const before = this.#entries.get(key);
    if (plan?.collides) this.#colliding.add(key);
    else this.#colliding.delete(key);
    if (!plan || plan.isEmpty || address === null) {
      this.#delete(key);
      return;
    }
    const keyBytes = before?.key ?? frontendKey(address, port, protocol);
    const id = before?.id ?? this.#idOf(keyBytes);
    const made: Placed[] = [];
    const place = (route: RoutePlan): PlacedRoute => {
      const { endpoints, action } = route;
      if (endpoints.length === 0) return { entry: { action, first: 0, count: 0 }, placed: null };
      const kept = [before?.pod.placed, before?.node.placed, made[0]].find(
        (placed) =>
          placed &&
          placed.endpoints === endpoints &&
          placed.sticky === (affinitySeconds !== null) &&
          (before === undefined ||
            made.includes(placed) ||
            before.frontend.options.balance === frontend.options.balance),
      );
      const placed = kept ?? this.#newRun(frontend, endpoints, id);
      if (!kept) made.push(placed);
      return { entry: { action, first: placed.run.first, count: placed.slots.length }, placed };
    };
    const pod = place(plan.pod);
    const node = place(plan.node);
    const value = frontendValue({
      id,
      affinitySeconds: affinitySeconds ?? 0,
      balance: BALANCE[frontend.options.balance] | (frontend.options.failover ? 0 : NO_FAILOVER),
      pod: pod.entry,
      node: node.entry,
    });
    this.#entries.set(key, { frontend, id, key: keyBytes, value, pod, node });
    if (!before || !sameBytes(before.value, value)) this.#frontends.addBytes(keyBytes, value);
    if (!before) {
      if (this.#entries.size > this.capacity.frontends) throw new CapacityExceeded();
      return;
    }
    this.#releaseRuns(before, new Set([pod.placed, node.placed]));
  }

  #delete(key: FrontendKey): void {
    const before = this.#entries.get(key);
    if (!before) return;
    this.#entries.delete(key);
    this.#goneFrontends.push(before.key);
    this.#releaseRuns(before, new Set());
  }

  #newRun(frontend: Frontend, endpoints: readonly Endpoint[], id: number): Placed {
    const slots = frontend.options.balance === 'maglev' ? maglevTable(endpoints) : endpoints;
    const run = this.#runs.allocate(slots.length);
    if (!run) throw new CapacityExceeded();
    const placed: Placed = { run, slots, endpoints, sticky: frontend.affinitySeconds !== null };
    for (const endpoint of endpoints) {
      const key = BackendNumbers.key(endpoint.ip, endpoint.port, frontend.protocol);
      if (this.#numbers.acquire(key) === null) throw new CapacityExceeded();
      if (this.#departed.size > 0 && this.#departed.delete(key)) this.#returned.push(key);
    }
    const index = this.#slots.add(slots.length);
    try {
      this.#writeSlots(this.#slots.values, index * ENDPOINT_WORDS, slots, frontend, id);
    } catch (error) {
      this.#slots.count = index;
      this.#release(placed, frontend, false);
      throw error;
    }
    for (let i = 0; i < slots.length; i++) this.#slots.keys[index + i] = run.first + i;
    if (placed.sticky) {
      for (const endpoint of endpoints) {
        const number = this.#numbers.numberOf(
          BackendNumbers.key(endpoint.ip, endpoint.port, frontend.protocol),
        );
        const key = memberKey(run.first, mappedAddress(endpoint.ip), endpoint.port);
        this.#members.addBytes(key, new Uint8Array(Uint32Array.of(number ?? 0).buffer));
      }
    }
    return placed;
  }

  #writeSlots(
    words: Uint32Array,
    at: number,
    slots: readonly Endpoint[],
    { family, protocol }: Frontend,
    id: number,
  ): void {
    for (const [i, endpoint] of slots.entries()) {
      const number = this.#numbers.numberOf(BackendNumbers.key(endpoint.ip, endpoint.port, protocol));
      writeEndpoint(words, at + i * ENDPOINT_WORDS, family, endpoint, id, number ?? 0);
    }
  }

  #releaseRuns({ pod, node, frontend }: Entry, kept: ReadonlySet<Placed | null>): void {
    for (const placed of new Set([pod.placed, node.placed])) {
      if (!placed || kept.has(placed)) continue;
      this.#goneMembers.push(...memberKeys(placed));
      this.#release(placed, frontend);
    }
  }

  /** `served`: sockets may be connected to what has no other user now. */
  #release({ run, endpoints }: Placed, { protocol }: Frontend, served = true): void {
    this.#runs.release(run);
    for (const { ip, port } of endpoints) {
      const key = BackendNumbers.key(ip, port, protocol);
      if (this.#numbers.release(key) && served) this.#depart(key);
    }
  }

  #depart(key: string): void {
    if (BackendNumbers.parse(key).protocol !== 'UDP') return;
    this.#departed.delete(key);
    this.#departed.add(key);
    this.#left.push(key);
  }

  #writeDeparted(sink: Sink): void {
    for (const key of this.#departed) {
      if (this.#departed.size <= MOST_DEPARTED) break;
      this.#departed.delete(key);
      this.#returned.push(key);
    }
    const fresh = this.#left.filter((key) => this.#departed.has(key)).map(departedKey);
    const gone = this.#returned.filter((key) => !this.#departed.has(key)).map(departedKey);
    this.#left = [];
    this.#returned = [];
    this.#operations += fresh.length + gone.length;
    sink.writeDeparted(fresh);
    sink.deleteDeparted(gone);
  }

  #idOf(key: Uint8Array): number {
    return this.#adoptedIds.get(Buffer.from(key).toString('latin1')) ?? this.#nextId++;
  }

  /** Plans those frontends anew that have an endpoint which has become, or was, a frontend itself. */
  #replan(endpoint: string, map: ServiceMap): void {
    // Those with the endpoint among their slots are searched for only where there are any.
    const users = this.#numbers.has(endpoint) ? this.#entries.keys() : [];
    for (const key of new Set([...users, ...this.#colliding])) {
      const frontend = map.frontends.get(key);
      if (frontend && hasEndpoint(frontend, endpoint)) this.#set(frontend, map);
    }
  }

  /** How many elements were written and deleted since the last call. */
  takeOperations(): number {
    const count = this.#operations;
    this.#operations = 0;
    return count;
  }

  #write(sink: Sink): void {
    for (const number of this.#numbers.takeFresh()) {
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
    this.#goneFrontends = [];
    this.#goneMembers = [];
    // At last: who leaves an endpoint is to find the new ones.
    if (this.#left.length + this.#returned.length > 0) this.#writeDeparted(sink);
  }
}

function departedKey(key: string): Uint8Array {
  const { ip, port, protocol } = BackendNumbers.parse(key);
  return frontendKey(ip, port, protocol);
}

function hasEndpoint({ routes, protocol }: Frontend, key: string): boolean {
  return [routes.pod, routes.node].some(
    (route) =>
      route.action === 'forward' &&
      route.pool.endpoints.some(({ ip, port }) => BackendNumbers.key(ip, port, protocol) === key),
  );
}

function memberKeys({ run, endpoints, sticky }: Placed): Uint8Array[] {
  return sticky ? endpoints.map(({ ip, port }) => memberKey(run.first, mappedAddress(ip), port)) : [];
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}
