import type { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import type { DumpedElement } from '../../kernel/nftables/dump.ts';
import { hasCode } from '../../lib/errors.ts';
import { wordsOf } from '../../nft/encoding.ts';
import type { FamilyTable } from './family-table.ts';
import { type Forgotten, isForgotten } from './remembered-clients.ts';

/** Clients whose first packet passed the old rules may be remembered after a listing: it is done again, this often. */
const ROUNDS = 3;

/**
 * Deletes what the kernel remembers of clients of endpoints that no longer serve: an entry, once made, is only ever
 * refreshed. To be called after the change is committed.
 */
export function forgetClients(connection: NftConnection, table: FamilyTable, forgotten: Forgotten): void {
  const protocol = NFPROTO[table.family];
  const isGone = isForgotten(table.keys, forgotten);
  for (let round = 0; round < ROUNDS; round++) {
    const elements = connection.elements(protocol, table.name, 'affinity').filter(isGone);
    if (elements.length === 0) return;
    deleteTolerantly(connection, protocol, table.name, elements);
  }
}

/** Elements may expire in between, and then cannot be deleted. */
function deleteTolerantly(
  connection: NftConnection,
  protocol: number,
  table: string,
  elements: readonly DumpedElement[],
): void {
  const all = connection.batch(protocol);
  for (const { key } of elements) all.destroyElement(table, 'affinity', { key: wordsOf(key) });
  try {
    connection.commitSync(all);
    return;
  } catch (error) {
    // Kernels before 6.3 do not know the message.
    if (!hasCode(error, 'EINVAL', 'EOPNOTSUPP')) throw error;
  }
  for (const { key } of elements) {
    const one = connection.batch(protocol);
    one.deleteElement(table, 'affinity', { key: wordsOf(key) });
    try {
      connection.commitSync(one);
    } catch (error) {
      if (!hasCode(error, 'ENOENT')) throw error;
    }
  }
}
