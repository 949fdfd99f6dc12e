import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { MODE_DIFFERENCES } from './mode-differences.ts';

/** Markdown as one line without formatting. */
const plain = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'modes.md'), 'utf8')
  .replace(/[*`]/g, '')
  .replace(/\s+/g, ' ');

for (const { id, modes, text } of MODE_DIFFERENCES) {
  test(`docs/modes.md documents that ${modes.join(' and ')} differ: ${id}`, () => {
    assert.ok(plain.includes(text), text);
  });
}
