import type { NftBatch } from '../../kernel/nftables/batch.ts';
import type { DumpedElement } from '../../kernel/nftables/dump.ts';
import { bytesOf, hexOf, wordsOf } from '../../nft/encoding.ts';
import type { Frontend } from '../../service/model.ts';
import { type FrontendState, slotKey } from './entries.ts';
import type { RegisterKeys } from './register-keys.ts';

/** Clients that must not come back to where they were: by frontend, and which endpoints (`slotKey`; null: all). */
export type Forgotten = Map<Frontend, ReadonlySet<string> | null>;

/** Notes the clients of endpoints that no longer serve a class of sources that they did serve. */
export function noteForgotten(forgotten: Forgotten, before: Frontend, after: Frontend | null): void {
  if (before.affinitySeconds === null) return;
  if (!after || after.affinitySeconds === null) {
    forgotten.set(before, null);
    return;
  }
  const gone = new Set<string>();
  for (const source of ['pod', 'node', 'external'] as const) {
    const [old, now] = [before.routes[source], after.routes[source]];
    if (old.action !== 'forward' || old === now) continue;
    const serving = new Set(now.action === 'forward' ? now.pool.endpoints.map(slotKey) : []);
    for (const endpoint of old.pool.endpoints)
      if (!serving.has(slotKey(endpoint))) gone.add(slotKey(endpoint));
  }
  if (gone.size > 0) forgotten.set(before, gone);
}

/** Which elements of the map of clients are to be forgotten. */
export function isForgotten(keys: RegisterKeys, forgotten: Forgotten): (element: DumpedElement) => boolean {
  const byHead = new Map<string, ReadonlySet<string> | null>();
  for (const [frontend, endpoints] of forgotten) {
    byHead.set(
      hexOf(bytesOf(keys.head(frontend))),
      endpoints && new Set([...endpoints].map((slot) => endpointHex(keys, slot))),
    );
  }
  return ({ key, data }) =>
    headsOf(keys, key).some((head) => {
      const endpoints = byHead.get(head);
      return endpoints === null || (endpoints !== undefined && data !== null && endpoints.has(hexOf(data)));
    });
}

/** Adds, of the clients that an earlier table remembered, those whose frontend and endpoint are there still. */
export function restoreClients(
  batch: NftBatch,
  table: string,
  keys: RegisterKeys,
  states: Iterable<FrontendState>,
  elements: readonly DumpedElement[],
): void {
  const valid = new Map<string, { seconds: number; endpoints: Set<string> }>();
  for (const { frontend, head, entries } of states) {
    if (frontend.affinitySeconds === null) continue;
    const endpoints = entries.flatMap((entry) => entry.slots.map((e) => hexOf(bytesOf(keys.endpoint(e)))));
    valid.set(hexOf(bytesOf(head)), { seconds: frontend.affinitySeconds, endpoints: new Set(endpoints) });
  }
  for (const { key, data, timeoutMs, expiresMs } of elements) {
    if (!data || expiresMs === 0) continue;
    const [found] = headsOf(keys, key).flatMap((head) => valid.get(head) ?? []);
    if (!found?.endpoints.has(hexOf(data))) continue;
    const limit = found.seconds * 1000;
    batch.addElement(table, 'affinity', {
      key: wordsOf(key),
      data: wordsOf(data),
      timeoutMs: Math.min(timeoutMs, limit),
      expiresMs: Math.min(expiresMs, limit),
    });
  }
}

/** What frontends' heads an element's key may end with: all behind the client's address, or a node port, without an address. */
const headsOf = ({ words }: RegisterKeys, key: Uint8Array): string[] =>
  [4 * words, 8 * words].map((from) => hexOf(key.subarray(from)));

function endpointHex(keys: RegisterKeys, slot: string): string {
  const [ip = '', port = ''] = slot.split(' ');
  return hexOf(bytesOf(keys.endpoint({ ip, port: Number(port) })));
}
