import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { readAgent } from './configuration.ts';
import { configurationDocument, FIELD_MEANINGS } from './configuration-document.ts';
import { recordFields } from './field-recorder.ts';

test('every field of the configuration, and no other, has a description', () => {
  assert.deepEqual(
    Object.keys(FIELD_MEANINGS).sort(),
    recordFields(readAgent)
      .map(({ path }) => path)
      .sort(),
  );
});

test('docs/configuration.md equals the fields of the configuration reader', () => {
  const file = join(import.meta.dirname, '..', '..', 'docs', 'configuration.md');
  assert.equal(readFileSync(file, 'utf8'), configurationDocument());
});
