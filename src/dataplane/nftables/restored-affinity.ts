import type { Element } from '../../kernel/nftables/batch.ts';
import type { DumpedElement } from '../../kernel/nftables/dump.ts';
import type { IPFamily } from '../../lib/address.ts';
import { addressWords, bytesText, wordsOf, wordsText } from '../../nft/encoding.ts';
import type { Table } from '../../nft/table.ts';
import type { Endpoint, Frontend } from '../../service/model.ts';
import { endpointPlace, lostEndpoints, poolsOf } from '../../service/pools.ts';
import { addressAndPort, frontendKey } from '../rules/frontend-keys.ts';
import { AFFINITY } from '../rules/pick-chains.ts';

/** Clients that must not return to their endpoint: by frontend, the endpoints (`endpointPlace`; null: all). */
export type Forgotten = Map<Frontend, ReadonlySet<string> | null>;

/** Records the endpoints that no longer serve a source class. */
export function noteForgotten(forgotten: Forgotten, before: Frontend, after: Frontend | null): void {
  if (before.affinitySeconds === null) return;
  if (!after || after.affinitySeconds === null) {
    forgotten.set(before, null);
    return;
  }
  const lost = lostEndpoints(before, after);
  if (lost.size > 0) forgotten.set(before, lost);
}

/**
 * Number of listings after which a client whose first packet passed the earlier rules cannot appear any
 * more.
 */
const ROUNDS = 3;

/**
 * Deletes the kernel's affinity entries to endpoints that no longer serve, which clients would keep refreshing. Call it
 * after the change is committed.
 */
export function forgetClients(table: Table, forgotten: Forgotten): void {
  const isGone = isForgotten(table.family, forgotten);
  for (let round = 0; round < ROUNDS; round++) {
    const gone = table.read(AFFINITY).filter(isGone);
    if (gone.length === 0) return;
    table.forget(
      AFFINITY,
      gone.map(({ key }) => wordsOf(key)),
    );
  }
}

function isForgotten(family: IPFamily, forgotten: Forgotten): (element: DumpedElement) => boolean {
  const byKey = new Map<string, ReadonlySet<string> | null>();
  for (const [frontend, endpoints] of forgotten) {
    const gone = new Set<string>();
    for (const endpoint of endpointsOf(frontend)) {
      if (endpoints?.has(endpointPlace(endpoint))) gone.add(endpointText(endpoint, family));
    }
    byKey.set(keyText(frontend), endpoints && gone);
  }
  return ({ key, data }) =>
    frontendTexts(family, key).some((text) => {
      const endpoints = byKey.get(text);
      return (
        endpoints === null || (endpoints !== undefined && data !== null && endpoints.has(bytesText(data)))
      );
    });
}

/** Returns the affinity entries of an earlier table whose frontend and endpoint still serve. */
export function restoredClients(
  family: IPFamily,
  frontends: Iterable<Frontend>,
  remembered: readonly DumpedElement[],
): Element[] {
  if (remembered.length === 0) return [];
  const valid = new Map<string, { seconds: number; endpoints: Set<string> }>();
  for (const frontend of frontends) {
    if (frontend.family !== family || frontend.affinitySeconds === null) continue;
    const endpoints = endpointsOf(frontend).map((endpoint) => endpointText(endpoint, family));
    valid.set(keyText(frontend), { seconds: frontend.affinitySeconds, endpoints: new Set(endpoints) });
  }
  return remembered.flatMap(({ key, data, timeoutMs, expiresMs }): Element[] => {
    if (!data || expiresMs === 0) return [];
    const [found] = frontendTexts(family, key).flatMap((text) => valid.get(text) ?? []);
    if (!found?.endpoints.has(bytesText(data))) return [];
    const limit = found.seconds * 1000;
    return [
      {
        key: wordsOf(key),
        data: wordsOf(data),
        timeoutMs: Math.min(timeoutMs, limit),
        expiresMs: Math.min(expiresMs, limit),
      },
    ];
  });
}

const endpointsOf = (frontend: Frontend): Endpoint[] =>
  poolsOf(frontend).flatMap(({ endpoints }) => endpoints);

/** Returns strings to compare with those of `frontendTexts`. */
const keyText = (frontend: Frontend): string => textOf(() => frontendKey(frontend));

const endpointText = ({ ip, port }: Endpoint, family: IPFamily): string =>
  textOf(() => addressAndPort(ip, port, family));

/** Returns the text of encoded words; for an invalid address, a text that equals no other. */
function textOf(encode: () => Uint32Array): string {
  try {
    const words = encode();
    return wordsText(words, 0, words.length);
  } catch {
    return '';
  }
}

/** Returns the keys of frontends to which an element may belong: with the fields after the client's address, or also
without the address. */
const frontendTexts = (family: IPFamily, key: Uint8Array): string[] =>
  [1, 2].map((addresses) => bytesText(key.subarray(4 * addressWords(family) * addresses)));
