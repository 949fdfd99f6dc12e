import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isUnfinished } from './state.ts';

const ROWS: readonly { readonly name: string; readonly files: readonly string[] | null; is: boolean }[] = [
  { name: 'no folder', files: null, is: false },
  { name: 'a folder without the state: up was killed before its first write', files: [], is: true },
  { name: 'a state that is half written', files: ['cluster.json.812.0.new'], is: true },
  { name: 'a cluster', files: ['cluster.json', 'cluster.json.812.0.new'], is: false },
  { name: 'a folder of something else', files: ['notes.txt'], is: false },
];

for (const { name, files, is } of ROWS) {
  test(`${name}: ${is ? 'down removes it' : 'not taken for an interrupted up'}`, (t) => {
    const root = mkdtempSync(join(tmpdir(), 'state-'));
    const earlier = process.env['FAIRLEAD_STATE'];
    process.env['FAIRLEAD_STATE'] = root;
    t.after(() => {
      if (earlier === undefined) delete process.env['FAIRLEAD_STATE'];
      else process.env['FAIRLEAD_STATE'] = earlier;
      rmSync(root, { recursive: true });
    });
    if (files) mkdirSync(join(root, 'one'));
    for (const file of files ?? []) writeFileSync(join(root, 'one', file), '');
    assert.equal(isUnfinished('one'), is);
  });
}
