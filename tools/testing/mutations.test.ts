import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { MUTATIONS, mutate } from './mutations.ts';

const root = resolve(import.meta.dirname, '../..');

for (const mutation of MUTATIONS)
  test(`${mutation.file} has the line of which the change means: ${mutation.effect}`, () => {
    const text = readFileSync(join(root, mutation.file), 'utf8');
    assert.notEqual(mutate(mutation, text), text);
  });
