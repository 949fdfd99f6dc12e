import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { containersFolder } from '../runtime/oci-runtime.ts';
import { restartTime } from './restart-time.ts';

const folder = mkdtempSync(join(tmpdir(), 'fairlead-restart-'));
after(() => rmSync(folder, { recursive: true }));

const NOW = 1_700_000_000_400;

const CASES = [
  { name: 'a node that never had containers', changed: null, waitsMs: 0 },
  { name: 'the last container started a second ago', changed: NOW - 1000, waitsMs: 0 },
  { name: 'the last container started just before this second', changed: NOW - 401, waitsMs: 0 },
  { name: 'the last container started in this second', changed: NOW - 300, waitsMs: 600 },
];

for (const [i, { name, changed, waitsMs }] of CASES.entries())
  test(name, async () => {
    const node = join(folder, String(i));
    if (changed !== null) {
      mkdirSync(containersFolder(node), { recursive: true });
      utimesSync(containersFolder(node), changed / 1000, changed / 1000);
    }
    const clock = manualClock(NOW);
    const time = restartTime([join(folder, 'none'), node], clock);
    clock.advance(waitsMs);
    assert.equal(await time, NOW + waitsMs);
  });
