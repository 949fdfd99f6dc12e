import type { IPFamily } from '../../lib/address.ts';
import type { Endpoint, Frontend, Protocol } from '../../service/model.ts';
import { BACKEND_KEY_WORDS } from './backend-numbers.ts';
import {
  balanceOf,
  ENDPOINT_WORDS,
  FRONTEND_KEY_WORDS,
  FRONTEND_WORDS,
  memberKey,
  memberValue,
  type RouteEntry,
  writeFrontend,
  writeKey,
  writeSlot,
} from './entries.ts';
import type { Run } from './slot-allocator.ts';

/** A run in use and its endpoints, each of which counts as a use of its number. */
export interface PlacedRun {
  readonly run: Run;
  /** In the order of the slots. */
  readonly slots: readonly Endpoint[];
  readonly endpoints: readonly Endpoint[];
  /** Endpoints without a slot, which only flows that already use them may use. */
  readonly spared: readonly Endpoint[];
  /** The result of `encodeKeys`: the endpoints in their order, then the spared ones. */
  readonly keys: Uint32Array;
  /** In the same order. */
  readonly numbers: readonly number[];
  readonly hasMembers: boolean;
}

export interface PlacedRoute {
  readonly entry: RouteEntry;
  readonly placed: PlacedRun | null;
}

/** A frontend with the numbers that were allocated for it: all that its map entries depend on. */
export interface PlacedFrontend {
  readonly frontend: Frontend;
  readonly id: number;
  readonly pod: PlacedRoute;
  readonly node: PlacedRoute;
}

/** The entries of the maps for one frontend. */
export interface MapEntries {
  /** Key, then value. */
  readonly frontend: Uint32Array;
  readonly runs: readonly RunEntries[];
}

export interface RunEntries {
  readonly first: number;
  /** The values of consecutive slots. */
  readonly slots: Uint32Array;
  readonly members: readonly (readonly [key: Uint8Array, value: Uint8Array])[];
}

/** Renders a frontend. */
export const render = (placed: PlacedFrontend): MapEntries => ({
  frontend: renderFrontend(placed),
  runs: runsOf(placed).map((run) => renderRun(run, placed.id)),
});

/** Returns the runs of a frontend: both of its routes may have the same one. */
export function runsOf(placed: PlacedFrontend | null): PlacedRun[] {
  const [pod, node] = [placed?.pod.placed ?? null, placed?.node.placed ?? null];
  return [pod, node === pod ? null : node].filter((run) => run !== null);
}

/** Renders key and value of a frontend in the map `frontends`. */
export function renderFrontend({ frontend, id, pod, node }: PlacedFrontend): Uint32Array {
  const { affinitySeconds, options } = frontend;
  const words = new Uint32Array(FRONTEND_KEY_WORDS + FRONTEND_WORDS);
  writeFrontendKey(words, frontend);
  writeFrontend(words, FRONTEND_KEY_WORDS, {
    id,
    affinitySeconds: affinitySeconds ?? 0,
    balance: balanceOf(options),
    pod: pod.entry,
    node: node.entry,
  });
  return words;
}

/** Renders the slots and members of a run. `id`: of its frontend. */
export function renderRun(placed: PlacedRun, id: number): RunEntries {
  const { run, slots, endpoints, spared, keys, numbers } = placed;
  const words = new Uint32Array(slots.length * ENDPOINT_WORDS);
  // A Maglev table contains each endpoint many times, in a different order.
  const places = slots === endpoints ? null : new Map(endpoints.map((endpoint, i) => [endpoint, i]));
  for (let i = 0; i < slots.length; i++) {
    const slot = slots[i];
    const place = places && slot ? (places.get(slot) ?? 0) : i;
    writeSlot(words, i * ENDPOINT_WORDS, keys, place * BACKEND_KEY_WORDS, id, numbers[place] ?? 0);
  }
  const members = placed.hasMembers
    ? [...endpoints, ...spared].map(
        (endpoint, i) =>
          [memberKey(run.first, endpoint), memberValue(numbers[i] ?? 0, i >= endpoints.length)] as const,
      )
    : [];
  return { first: run.first, slots: words, members };
}

/** Returns the keys of a run's members. */
export function memberKeys({ run, endpoints, spared, hasMembers }: PlacedRun): Uint8Array[] {
  if (!hasMembers) return [];
  return [...endpoints, ...spared].map((endpoint) => memberKey(run.first, endpoint));
}

/** Returns the key of a frontend that has an address. Throws FairleadError EINVAL if the address is invalid. */
export function frontendKey(frontend: Frontend): Uint8Array {
  const words = new Uint32Array(FRONTEND_KEY_WORDS);
  writeFrontendKey(words, frontend);
  return new Uint8Array(words.buffer);
}

function writeFrontendKey(words: Uint32Array, { family, address, port, protocol }: Frontend): void {
  writeKey(words, 0, family, { ip: address ?? '', port }, protocol);
}

/** Encodes the keys of endpoints one after the other. Throws FairleadError EINVAL for an invalid address. */
export function encodeKeys(
  family: IPFamily,
  protocol: Protocol,
  endpoints: readonly Endpoint[],
  spared: readonly Endpoint[],
): Uint32Array {
  const keys = new Uint32Array((endpoints.length + spared.length) * BACKEND_KEY_WORDS);
  let at = 0;
  for (const list of [endpoints, spared]) {
    for (const endpoint of list) {
      writeKey(keys, at, family, endpoint, protocol);
      at += BACKEND_KEY_WORDS;
    }
  }
  return keys;
}
