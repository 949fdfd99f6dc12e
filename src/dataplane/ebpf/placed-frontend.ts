import type { Endpoint, Frontend } from '../../service/model.ts';
import {
  balanceOf,
  FRONTEND_KEY_WORDS,
  memberKey,
  type RouteEntry,
  writeFrontend,
  writeKey,
} from './entries.ts';
import { FRONTEND_KEY } from './generated/layout.ts';
import type { Run } from './slot-allocator.ts';

/** A run in use and its endpoints, each of which counts as a use of its number. */
export interface Placed {
  readonly run: Run;
  /** In the order of the slots. */
  readonly slots: readonly Endpoint[];
  readonly endpoints: readonly Endpoint[];
  /** Endpoints without a slot, which only flows that already use them may use. */
  readonly spared: readonly Endpoint[];
  /** In the order of the endpoints, then of the spared ones. */
  readonly numbers: readonly number[];
  readonly hasMembers: boolean;
}

export interface PlacedRoute {
  readonly entry: RouteEntry;
  readonly placed: Placed | null;
}

export interface Entry {
  readonly frontend: Frontend;
  readonly id: number;
  readonly pod: PlacedRoute;
  readonly node: PlacedRoute;
}

/** Writes the key of a frontend that has an address. */
export function writeFrontendKey(words: Uint32Array, { family, address, port, protocol }: Frontend): void {
  writeKey(words, 0, family, { ip: address ?? '', port }, protocol);
}

/** Writes key and value of a placed frontend. */
export function writeEntry(words: Uint32Array, { frontend, id, pod, node }: Entry): void {
  const { affinitySeconds, options } = frontend;
  writeFrontendKey(words, frontend);
  writeFrontend(words, FRONTEND_KEY_WORDS, {
    id,
    affinitySeconds: affinitySeconds ?? 0,
    balance: balanceOf(options),
    pod: pod.entry,
    node: node.entry,
  });
}

/** Returns the keys of a run's members. */
export function memberKeys({ run, endpoints, spared, hasMembers }: Placed): Uint8Array[] {
  if (!hasMembers) return [];
  return [...endpoints, ...spared].map((endpoint) => memberKey(run.first, endpoint));
}

export function sameWords(a: Uint32Array, b: Uint32Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Returns the key of an element, without a copy. */
export const keyBytes = ({ buffer }: Uint32Array): Uint8Array => new Uint8Array(buffer, 0, FRONTEND_KEY.size);
/** Returns a copy of an element's value. */
export const valueBytes = ({ buffer }: Uint32Array): Uint8Array =>
  new Uint8Array(buffer, FRONTEND_KEY.size).slice();
/** Returns bytes as text that can be a key of a map. */
export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');
export const bytesOfText = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'));
