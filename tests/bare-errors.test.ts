import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { test } from 'node:test';

/**
 * The files that may create a bare Error, with their number: all others throw FairleadError, which has a code and a fix.
 * The API server's are texts within a Status, worded like upstream's; the page has no codes.
 */
const ALLOWED: Readonly<Record<string, number>> = {
  // Invariants: only a defect of this program can break them.
  'cli/chart-template.ts': 1,
  'dataplane/ebpf/syn-timeout.ts': 1,
  'dataplane/ipvs/programmed.ts': 1,
  'kernel/nftables/attribute-writer.ts': 1,
  'kernel/nftables/batch.ts': 1,
  'nft/table-contents.ts': 1,
  'nft/table.ts': 1,
  // Converts thrown values that are not Errors.
  'lib/errors.ts': 1,
};
const ROOMS_WITH_OTHER_ERRORS = ['apiserver/', 'ui/page/'];

const source = resolve(import.meta.dirname, '..', 'src');

test('errors that a user can see have a code', () => {
  const found: Record<string, number> = {};
  for (const entry of readdirSync(source, { withFileTypes: true, recursive: true })) {
    const file = relative(source, join(entry.parentPath, entry.name));
    if (!entry.isFile() || !/\.tsx?$/.test(file) || /\.test\.ts$|testing\/|generated\//.test(file)) continue;
    if (ROOMS_WITH_OTHER_ERRORS.some((room) => file.startsWith(room))) continue;
    const count = readFileSync(join(source, file), 'utf8').match(/\bnew Error\(/g)?.length ?? 0;
    if (count > 0) found[file] = count;
  }
  assert.deepEqual(found, ALLOWED);
});
