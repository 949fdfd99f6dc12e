import type { IPFamily } from '../../lib/address.ts';
import { errorOf } from '../../lib/errors.ts';
import { recordOf } from '../../lib/record-of.ts';
import type { ElementGroup } from '../../nft/spec.ts';
import {
  type Change,
  type Frontend,
  type FrontendKey,
  type ServiceMap,
  SOURCE_CLASSES,
  type SourceClass,
} from '../../service/model.ts';
import { CLUSTER_IPS, changeAddressSet } from '../rules/address-elements.ts';
import type { ListenerTable } from './listener-table.ts';
import {
  listenerOwner,
  type ProgrammedFrontend,
  renderFrontend,
  renderListener,
  type Target,
} from './render.ts';

/** A frontend in the tables. */
interface Programmed extends ProgrammedFrontend {
  readonly group: ElementGroup;
}

type Groups = Map<IPFamily, Map<string, ElementGroup | null>>;

/** The frontends in the tables, with the listeners that they use. */
export class FrontendTable {
  /** Frontends of which a route is rejected for want of a listener, with the reason. */
  readonly failures = new Map<FrontendKey, Error>();
  readonly #families: readonly IPFamily[];
  readonly #listeners: ListenerTable;
  readonly #programmed = new Map<FrontendKey, Programmed>();

  constructor(families: readonly IPFamily[], listeners: ListenerTable) {
    this.#families = families;
    this.#listeners = listeners;
  }

  /** Acquires the listeners of a whole map. */
  fill(map: ServiceMap): void {
    this.clear();
    for (const frontend of map.frontends.values()) {
      const state = this.#families.includes(frontend.family) ? this.#program(frontend) : null;
      if (state) this.#programmed.set(frontend.key, state);
    }
    this.#listeners.sweep();
  }

  /** Applies a change. Returns the groups of elements that changed; null: removed. */
  change(change: Change): Groups {
    const groups: Groups = new Map(this.#families.map((family) => [family, new Map()]));
    for (const { key, before, after } of change.frontends) {
      const ofFamily = groups.get((after ?? before)?.family ?? 'ipv4');
      if (!ofFamily) continue;
      this.failures.delete(key);
      // Acquired before the previous one is released, so that unchanged listeners stay open.
      const state = after && this.#program(after);
      for (const pool of this.#programmed.get(key)?.pools ?? []) this.#listeners.release(pool);
      if (state) this.#programmed.set(key, state);
      else this.#programmed.delete(key);
      ofFamily.set(key, state?.group ?? null);
    }
    const { unused, opened } = this.#listeners.sweep();
    for (const listener of unused) groups.get(listener.family)?.set(listenerOwner(listener), null);
    for (const listener of opened)
      groups.get(listener.family)?.set(listenerOwner(listener), renderListener(listener));
    for (const [family, ofFamily] of groups)
      changeAddressSet(ofFamily, CLUSTER_IPS, family, change.clusterIPs);
    return groups;
  }

  get(key: FrontendKey): ProgrammedFrontend | undefined {
    return this.#programmed.get(key);
  }

  groups(family: IPFamily): { readonly key: FrontendKey; readonly group: ElementGroup }[] {
    return [...this.#programmed].flatMap(([key, { frontend, group }]) =>
      frontend.family === family ? [{ key, group }] : [],
    );
  }

  clear(): void {
    this.failures.clear();
    this.#programmed.clear();
  }

  #program(frontend: Frontend): Programmed | null {
    const fail = (error: unknown) => void this.failures.set(frontend.key, errorOf(error));
    return programFrontend(frontend, this.#listeners, fail);
  }
}

/** Acquires the listeners of a frontend. Returns null, and reports the failure, if that is not possible. */
function programFrontend(
  frontend: Frontend,
  listeners: ListenerTable,
  fail: (error: unknown) => void,
): Programmed | null {
  const pools = new Set<string>();
  const target = (source: SourceClass): Target => {
    const route = frontend.routes[source];
    if (route.action !== 'forward') return route.action;
    try {
      const taken = pools.has(route.pool.id) ? listeners.get(route.pool.id) : undefined;
      const { at } = taken ?? listeners.take(route.pool, frontend);
      pools.add(route.pool.id);
      return at;
    } catch (error) {
      fail(error);
      return 'reject';
    }
  };
  const targets = recordOf(SOURCE_CLASSES, target);
  const state = { frontend, targets, pools: [...pools] };
  try {
    return { ...state, group: renderFrontend(state) };
  } catch (error) {
    fail(error);
    for (const pool of pools) listeners.release(pool);
    return null;
  }
}
