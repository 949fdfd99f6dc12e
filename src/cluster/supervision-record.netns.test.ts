import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { NEW_RECORD } from '../kernel/process-record.ts';
import { hasCode } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { clusterPaths, writeSupervision } from './state.ts';
import { NO_SUPERVISION, type Supervision } from './supervision.ts';
import { createSupervisionRecord, type RecordState } from './supervision-record.ts';

const NAME = 'small';
let folder = '';
const rootBefore = process.env['FAIRLEAD_STATE'];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'flt-record-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'small', folder]);
  process.env['FAIRLEAD_STATE'] = folder;
  mkdirSync(clusterPaths(NAME).root);
});
afterEach(() => {
  if (rootBefore === undefined) delete process.env['FAIRLEAD_STATE'];
  else process.env['FAIRLEAD_STATE'] = rootBefore;
  execFileSync('umount', [folder]);
  rmSync(folder, { recursive: true, force: true });
});

/** A record in which each node's agent was restarted this often. */
const restarted = (restarts: number): Supervision => ({
  ...NO_SUPERVISION,
  processes: { 'node-1': { ...NEW_RECORD, restarts }, 'node-2': { ...NEW_RECORD, restarts } },
});
const written = () => JSON.parse(readFileSync(clusterPaths(NAME).processes, 'utf8')) as Supervision;

test('on a full disk the record goes on in memory, names the problem, and is written when there is space', () => {
  const changes: RecordState[] = [];
  const record = createSupervisionRecord({
    initial: NO_SUPERVISION,
    write: (supervision) => writeSupervision(NAME, supervision),
    onChange: (state) => changes.push(state),
    logger: silentLogger,
  });
  record.put(restarted(1));
  assert.deepEqual(written(), restarted(1));
  const filler = join(folder, 'filler');
  assert.throws(
    () => writeFileSync(filler, Buffer.alloc(1 << 20)),
    (error) => hasCode(error, 'ENOSPC'),
  );
  record.put(restarted(2));
  record.retry();
  assert.deepEqual(written(), restarted(1));
  assert.deepEqual(record.current().supervision, restarted(2));
  assert.match(record.current().problem ?? '', /no space left/);
  rmSync(filler);
  record.retry();
  assert.deepEqual(written(), restarted(2));
  assert.deepEqual(record.current(), { supervision: restarted(2), problem: null });
  assert.deepEqual(
    changes.map(({ supervision, problem }) => [supervision.processes['node-1']?.restarts, problem !== null]),
    [
      [1, false],
      [2, true],
      [2, false],
    ],
  );
});
