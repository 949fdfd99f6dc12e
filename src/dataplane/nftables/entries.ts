import type { Endpoint, Frontend, Route } from '../../service/model.ts';
import type { Keying } from '../nf-matches.ts';
import { type Pick, pickChain, type Scope } from './layout.ts';
import { sizeClass } from './size-class.ts';

/** What one map says of a frontend: for all sources, or for a class that is an exception. */
export interface Entry {
  readonly scope: Scope;
  /** Null: rejected or dropped. */
  readonly pick: Pick | null;
  readonly verdict: 'pick' | 'reject' | 'drop';
  /** By slot; without holes, `sizeClass(slots.length) === pick.size`. */
  readonly slots: readonly Endpoint[];
}

/** A frontend as it is in the kernel. */
export interface FrontendState {
  readonly frontend: Frontend;
  /** Of its keys (`RegisterKeys.head`). */
  readonly head: Uint32Array;
  entries: readonly Entry[];
}

export const keyingOf = (frontend: Frontend): Keying => (frontend.address === null ? 'port' : 'address');

/** "namespace/name:port", as `nft list` shows it beside the frontend's element. */
export function commentOf({ owner }: Frontend): string {
  return `${owner.namespace}/${owner.name}${owner.portName === '' ? '' : `:${owner.portName}`}`;
}

/**
 * Renders a frontend's routes: the node's own route holds for everybody whose route does not differ from it by more
 * than that pods alone are not masqueraded; exceptions stand in maps that their class looks into first.
 */
export function entriesOf(frontend: Frontend, hasPods: boolean): Entry[] {
  const { node, pod, external } = frontend.routes;
  const podsAlike = !hasPods || (sameTarget(node, pod) && (!masquerades(pod) || masquerades(node)));
  const externalAlike = sameTarget(node, external) && masquerades(external) === masquerades(node);
  const onlyNonpods = hasPods && podsAlike && masquerades(node) && !masquerades(pod);
  const entries = [entryOf(frontend, 'any', node, onlyNonpods)];
  if (!podsAlike) entries.push(entryOf(frontend, 'pod', pod, false));
  if (!externalAlike) entries.push(entryOf(frontend, 'external', external, false));
  return entries;
}

function entryOf(frontend: Frontend, scope: Scope, route: Route, onlyNonpods: boolean): Entry {
  if (route.action !== 'forward') return { scope, pick: null, verdict: route.action, slots: [] };
  const slots = route.pool.endpoints;
  return {
    scope,
    verdict: 'pick',
    pick: {
      keying: keyingOf(frontend),
      scope,
      size: sizeClass(slots.length),
      sticky: frontend.affinitySeconds !== null,
      masquerade: route.masquerade ? (onlyNonpods ? 'nonpod' : 'all') : 'none',
    },
    slots,
  };
}

const masquerades = (route: Route) => route.action === 'forward' && route.masquerade;

function sameTarget(a: Route, b: Route): boolean {
  if (a.action === 'forward') return b.action === 'forward' && a.pool.id === b.pool.id;
  return a.action === b.action;
}

/** The slots of a pool that changed within its class: what stays keeps its slot, what is new fills the gaps. */
export function rearranged(before: readonly Endpoint[], wanted: readonly Endpoint[]): Endpoint[] {
  const remaining = new Map(wanted.map((endpoint) => [slotKey(endpoint), endpoint]));
  const slots: (Endpoint | null)[] = new Array(wanted.length).fill(null);
  for (let i = 0; i < slots.length; i++) {
    const old = before[i];
    const kept = old && remaining.get(slotKey(old));
    if (!kept) continue;
    slots[i] = kept;
    remaining.delete(slotKey(kept));
  }
  const fresh = remaining.values();
  return slots.map((slot) => slot ?? (fresh.next().value as Endpoint));
}

export const slotKey = (endpoint: Endpoint): string => `${endpoint.ip} ${endpoint.port}`;
export const sameSlot = (a: Endpoint, b: Endpoint): boolean => a.ip === b.ip && a.port === b.port;

/** What the element of an entry leads to, as `nft list` shows it. */
export function verdictText(entry: Entry): string {
  if (entry.pick) return `goto ${pickChain(entry.pick)}`;
  return entry.verdict === 'drop' ? 'drop' : 'goto reject';
}
