import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ejectionRulesTable } from './testing/ejection-rules-table.ts';

test('docs/failover.md has the table of the rules', () => {
  const text = readFileSync(new URL('../../docs/failover.md', import.meta.url), 'utf8');
  const table = ejectionRulesTable();
  assert.ok(text.includes(table), `docs/failover.md must contain this table:\n\n${table}\n`);
});
