import assert from 'node:assert/strict';
import { createTableService } from '../tables.ts';

const NOW = new Date('2024-05-06T12:00:00Z');
/** Default creation time of objects: five minutes ago. */
export const CREATED = '2024-05-06T11:55:00Z';

export const tables = createTableService();

/** Returns one row of `kubectl get` by column; `wide` as with -o wide. */
export function row(group: string, kind: string, object: object, wide = false): string {
  const cells = tables.cells(
    group,
    kind,
    { metadata: { name: 'x', creationTimestamp: CREATED }, ...object },
    NOW,
  );
  const columns = tables.columns(group, kind) as readonly { name: string; priority: number }[];
  assert.equal(cells.length, columns.length, `${kind}: as many cells as columns`);
  return columns
    .flatMap((column, index) => (wide || column.priority === 0 ? [String(cells[index])] : []))
    .join(' ¦ ');
}
