import type { Clock } from '../../lib/clock.ts';
import type { Frontend } from '../../service/model.ts';
import { BACKEND_KEY_WORDS, BackendNumbers } from './backend-numbers.ts';
import { textOf } from './entries.ts';
import { maglevTable } from './maglev.ts';
import type { MapContents } from './map-contents.ts';
import type { Capacity } from './maps.ts';
import { type FrontendPlan, hasMembers, type RoutePlan } from './plan.ts';
import { RemovedBackends } from './removed-backends.ts';
import {
  encodeKeys,
  frontendKey,
  type PlacedFrontend,
  type PlacedRoute,
  type PlacedRun,
  runsOf,
} from './render.ts';
import { type Run, SlotAllocator } from './slot-allocator.ts';

/** A route's run: an earlier one, or the keys of the endpoints of a new one; null: the route needs none. */
type WantedRun = PlacedRun | { readonly route: RoutePlan; readonly keys: Uint32Array } | null;

/** The numbers of a map's contents: ids of frontends, runs of slots, and numbers of endpoints. */
export class Allocation {
  readonly removed = new RemovedBackends();
  readonly #capacity: Capacity;
  readonly #slots: SlotAllocator;
  readonly #numbers: BackendNumbers;
  /** Ids of frontends that an earlier process assigned: affinity entries refer to them. */
  #adoptedIds = new Map<string, number>();
  #adoptedRuns: Run[] = [];
  #nextId = 1;
  /** Members in the map, including those that the next write deletes. */
  #members = 0;
  #releasedMembers = 0;

  /** `isFresh`: the maps were just created. */
  constructor(capacity: Capacity, clock: Clock, isFresh: boolean) {
    this.#capacity = capacity;
    this.#slots = new SlotAllocator(capacity.endpoints, clock);
    this.#numbers = new BackendNumbers(capacity.backends, isFresh);
  }

  /** Adopts an earlier process's runs, which stay untouched, and its numbers, which are assigned again, until `settle`. */
  adopt(found: MapContents): void {
    this.#adoptedRuns = found.runs.filter((run) => this.#slots.reserve(run));
    this.#numbers.adopt(found.backends);
    this.#members = found.members.length;
    this.#releasedMembers = found.members.length;
    this.removed.adopt(found.removedBackends);
    this.#adoptedIds = new Map([...found.frontends].map(([key, { id }]) => [key, id]));
    this.#nextId = this.#adoptedIds.values().reduce((max, id) => Math.max(max, id), 0) + 1;
  }

  /** Forgets the adopted ids, and releases the endpoints that no frontend uses; `releaseAdopted` releases the runs. */
  settle(): void {
    this.#adoptedIds = new Map();
    for (const number of this.#numbers.dropUnused()) this.removed.add(this.#numbers.wordsOf(number));
  }

  /** Releases the adopted runs. Called when no frontend in the maps refers to them. */
  releaseAdopted(): void {
    for (const run of this.#adoptedRuns) this.#slots.release(run);
    this.#adoptedRuns = [];
  }

  /**
   * Allocates the numbers that a frontend needs beyond those of the frontend before it, which keeps its own until `release`. Returns null if
   * the maps are too small. Throws FairleadError EINVAL, and allocates nothing, for an invalid address.
   */
  place(frontend: Frontend, plan: FrontendPlan, before: PlacedFrontend | null): PlacedFrontend | null {
    const key = frontendKey(frontend);
    const isLike = before?.frontend.options.balance === frontend.options.balance;
    const earlier = isLike ? runsOf(before) : [];
    const podRun = wantedRun(frontend, plan.pod, earlier);
    const nodeRun = hasSameRun(plan.pod, plan.node) ? podRun : wantedRun(frontend, plan.node, earlier);
    const pod = this.#allocate(frontend, podRun);
    const node = nodeRun === podRun ? pod : this.#allocate(frontend, nodeRun);
    if (pod === 'full' || node === 'full' || this.#members > this.#capacity.members) return null;
    const id = before?.id ?? this.#idOf(key);
    return { frontend, id, pod: placedRoute(plan.pod, pod), node: placedRoute(plan.node, node) };
  }

  /** Releases the runs of a frontend that `after` does not have; sockets may be connected to their endpoints. */
  release(before: PlacedFrontend, after: PlacedFrontend | null): void {
    const kept = runsOf(after);
    for (const placed of runsOf(before)) {
      if (kept.includes(placed)) continue;
      this.#slots.release(placed.run);
      for (const number of placed.numbers)
        if (this.#numbers.release(number)) this.removed.add(this.#numbers.wordsOf(number));
      if (placed.hasMembers) this.#releasedMembers += placed.numbers.length;
    }
  }

  /** Returns true if an endpoint with this number is in use. */
  usesBackend(number: number): boolean {
    return this.#numbers.isUsed(number);
  }

  /** Returns true if an endpoint with this key (`writeKey`) is in use. */
  usesEndpoint(key: Uint32Array): boolean {
    return this.#numbers.find(key, 0) >= 0;
  }

  /** Returns the numbers assigned to another endpoint since the last call. */
  takeReused(): readonly number[] {
    return this.#numbers.takeReused();
  }

  /** Notes that the maps are written. */
  written(): void {
    this.#members -= this.#releasedMembers;
    this.#releasedMembers = 0;
  }

  #idOf(key: Uint8Array): number {
    const adopted = this.#adoptedIds.size > 0 ? this.#adoptedIds.get(textOf(key)) : undefined;
    return adopted ?? this.#nextId++;
  }

  #allocate(frontend: Frontend, wanted: WantedRun): PlacedRun | null | 'full' {
    if (wanted === null || 'run' in wanted) return wanted;
    const { endpoints, spared } = wanted.route;
    const { keys } = wanted;
    const slots = frontend.options.balance === 'maglev' ? maglevTable(endpoints) : endpoints;
    const run = this.#slots.allocate(slots.length);
    if (!run) return 'full';
    const numbers: number[] = [];
    for (let at = 0; at < keys.length; at += BACKEND_KEY_WORDS) {
      const number = this.#numbers.acquire(keys, at);
      if (number < 0) return 'full';
      this.removed.restore(keys, at);
      numbers.push(number);
    }
    if (hasMembers(frontend)) this.#members += numbers.length;
    return { run, slots, endpoints, spared, keys, numbers, hasMembers: hasMembers(frontend) };
  }
}

/** Returns true if two routes of a frontend have the same slots. */
type Endpoints = Pick<RoutePlan, 'endpoints' | 'spared'>;
export const hasSameRun = (a: Endpoints, b: Endpoints): boolean =>
  a.endpoints === b.endpoints && a.spared === b.spared;

function wantedRun(frontend: Frontend, route: RoutePlan, earlier: readonly PlacedRun[]): WantedRun {
  const { endpoints, spared } = route;
  if (endpoints.length === 0) return null;
  const isFor = (run: PlacedRun) => hasSameRun(run, route) && run.hasMembers === hasMembers(frontend);
  const { family, protocol } = frontend;
  return earlier.find(isFor) ?? { route, keys: encodeKeys(family, protocol, endpoints, spared) };
}

const placedRoute = ({ action }: RoutePlan, placed: PlacedRun | null): PlacedRoute => ({
  entry: { action, first: placed?.run.first ?? 0, count: placed?.slots.length ?? 0 },
  placed,
});
