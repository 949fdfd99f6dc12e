import { familyOf } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { Change, Endpoint, Frontend, FrontendKey, ServiceMap } from '../../service/model.ts';
import { poolsOf } from '../../service/pools.ts';
import { Allocation } from './allocation.ts';
import { bytesOfText, FRONTEND_KEY_WORDS, textOf, writeKey } from './entries.ts';
import type { MapContents } from './map-contents.ts';
import { MapWriter, type Sink } from './map-writer.ts';
import type { Capacity } from './maps.ts';
import { collidingEndpoint, isFrontend, planOf } from './plan.ts';
import { frontendKey, type PlacedFrontend } from './render.ts';

/** Whether the contents fit into the maps. If not, nothing was written, and the table is to be replaced by a larger one. */
type Fit = 'fits' | 'full';

/**
 * The frontends in the maps. Plans, allocates and renders each frontend that changes, and writes the entries that differ.
 */
export class ForwardingTable {
  readonly capacity: Capacity;
  /** Frontends that cannot be written, with the reason. */
  readonly failed = new Map<FrontendKey, Error>();
  readonly #placed = new Map<FrontendKey, PlacedFrontend>();
  /** Frontends that changed since the last write, as they were then. */
  readonly #before = new Map<FrontendKey, PlacedFrontend | null>();
  readonly #allocation: Allocation;
  readonly #writer = new MapWriter();
  /** Frontends left to nf_tables because one of their endpoints is a frontend itself. */
  readonly #colliding = new Set<FrontendKey>();
  /** Distinguishes endpoints that successively have the same number, across restarts too. */
  #generation: number;
  #operations = 0;

  /** `isFresh`: the maps were just created. */
  constructor(capacity: Capacity, clock: Clock, isFresh: boolean) {
    this.capacity = capacity;
    this.#allocation = new Allocation(capacity, clock, isFresh);
    this.#generation = Math.trunc(clock.now() / 1000) >>> 0;
  }

  /** Whether sockets may be connected to removed endpoints. */
  get hasRemovedBackends(): boolean {
    return this.#allocation.removed.size > 0;
  }

  /** Returns true if an endpoint with this number is in use. */
  usesBackend(number: number): boolean {
    return this.#allocation.usesBackend(number);
  }

  get(key: FrontendKey): PlacedFrontend | undefined {
    return this.#placed.get(key);
  }

  frontends(): Iterable<PlacedFrontend> {
    return this.#placed.values();
  }

  /**
   * Writes everything into maps whose contents are `found`. Runs in use stay untouched until no frontend
   * refers to them; frontends and endpoints keep their numbers.
   */
  fill(map: ServiceMap, found: MapContents, sink: Sink): Fit {
    this.#allocation.adopt(found);
    // The search goes through the frontends, since there are fewer of them than endpoints.
    for (const frontend of map.frontends.values()) if (this.#set(frontend, null) === 'full') return 'full';
    for (const frontend of map.frontends.values()) if (this.#replan(frontend, map) === 'full') return 'full';
    this.#allocation.settle();
    this.#write(sink, found);
    this.#writer.trim();
    this.#allocation.releaseAdopted();
    return 'fits';
  }

  /** Writes a change of the Service map. */
  apply(change: Change, map: ServiceMap, sink: Sink): Fit {
    for (const { key, after } of change.frontends) {
      if (!after) {
        this.#colliding.delete(key);
        this.failed.delete(key);
        this.#replace(key, null);
      } else if (this.#set(after, (endpoint) => isFrontend(endpoint, after, map)) === 'full') return 'full';
    }
    for (const { before, after } of change.frontends) {
      if (before && after) continue;
      const frontend = after ?? before;
      if (frontend && this.#replan(frontend, map) === 'full') return 'full';
    }
    this.#write(sink, null);
    return 'fits';
  }

  /** Returns the number of elements written and deleted since the last call. */
  takeOperations(): number {
    const count = this.#operations;
    this.#operations = 0;
    return count;
  }

  #set(frontend: Frontend, isFrontend: ((endpoint: Endpoint) => boolean) | null): Fit {
    const { key, address } = frontend;
    this.failed.delete(key);
    const plan = planOf(frontend, isFrontend);
    if (plan?.collides) this.#colliding.add(key);
    else this.#colliding.delete(key);
    if (!plan || plan.isEmpty || address === null) {
      this.#replace(key, null);
      return 'fits';
    }
    try {
      const placed = this.#allocation.place(frontend, plan, this.#placed.get(key) ?? null);
      if (placed) this.#replace(key, placed);
      return placed && this.#placed.size <= this.capacity.frontends ? 'fits' : 'full';
    } catch (error) {
      // An invalid address.
      if (!(error instanceof FairleadError)) throw error;
      this.failed.set(key, error);
      this.#replace(key, null);
      return 'fits';
    }
  }

  #replace(key: FrontendKey, after: PlacedFrontend | null): void {
    const before = this.#placed.get(key) ?? null;
    if (before === null && after === null) return;
    if (!this.#before.has(key)) this.#before.set(key, before);
    if (after) this.#placed.set(key, after);
    else this.#placed.delete(key);
    if (before) this.#allocation.release(before, after);
  }

  /** Plans frontends again that have an endpoint whose address and port are, or were, this frontend's. */
  #replan(collided: Frontend, map: ServiceMap): Fit {
    const endpoint = collidingEndpoint(collided, map);
    const { family, protocol } = collided;
    // An invalid address is already reported by `#set`.
    if (!endpoint || familyOf(endpoint.ip) !== family) return 'fits';
    const key = new Uint32Array(FRONTEND_KEY_WORDS);
    writeKey(key, 0, family, endpoint, protocol);
    // All frontends are searched only if one of them has such an endpoint.
    const isUsed = this.#allocation.usesEndpoint(key);
    if (!isUsed && this.#colliding.size === 0) return 'fits';
    for (const key of new Set([...(isUsed ? this.#placed.keys() : []), ...this.#colliding])) {
      const frontend = map.frontends.get(key);
      if (frontend?.family !== family || frontend.protocol !== protocol) continue;
      if (!hasEndpoint(frontend, endpoint)) continue;
      if (this.#set(frontend, (one) => isFrontend(one, frontend, map)) === 'full') return 'full';
    }
    return 'fits';
  }

  /** `found`: the contents of the maps, of which the entries of unknown frontends are left; null: there are none. */
  #write(sink: Sink, found: MapContents | null): void {
    const reused = this.#allocation.takeReused();
    const changes = [...this.#before].map(([key, before]) => ({
      before,
      after: this.#placed.get(key) ?? null,
    }));
    this.#before.clear();
    this.#operations += this.#writer.write(
      {
        frontends: changes,
        reused,
        generation: this.#generation,
        leftFrontends: found ? this.#unknown(found) : [],
        leftMembers: found?.members ?? [],
      },
      sink,
    );
    this.#generation += reused.length;
    // Last: flows from a removed endpoint have to find the new ones.
    this.#operations += this.#allocation.removed.flush(sink);
    this.#allocation.written();
  }

  #unknown({ frontends }: MapContents): Uint8Array[] {
    if (frontends.size === 0) return [];
    const wanted = new Set([...this.#placed.values()].map(({ frontend }) => textOf(frontendKey(frontend))));
    return [...frontends.keys()].filter((key) => !wanted.has(key)).map(bytesOfText);
  }
}

function hasEndpoint(frontend: Frontend, wanted: { readonly ip: string; readonly port: number }): boolean {
  const isWanted = ({ ip, port }: Endpoint) => port === wanted.port && ip === wanted.ip;
  return poolsOf(frontend).some((pool) => pool.endpoints.some(isWanted) || pool.spared?.some(isWanted));
}
