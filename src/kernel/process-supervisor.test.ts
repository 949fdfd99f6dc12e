import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import type { ProcessIdentity } from './process-identity.ts';
import { MAX_PAUSE_MS, type ProcessRecord, STABLE_MS } from './process-record.ts';
import { createSupervisor, POLL_MS, type Supervisor } from './process-supervisor.ts';

let clock: ManualClock;
let wanted: string[];
/** Processes whose needs are not met. */
let held: Set<string>;
let starts: string[];
let exits: Map<string, (reason: string) => void>;
/** Processes of an earlier supervisor that run. */
let adopted: Set<number>;
let records: Readonly<Record<string, ProcessRecord>>;
let faults: Error[];

beforeEach(() => {
  clock = manualClock(1_000_000);
  wanted = ['control-plane', 'node-1'];
  held = new Set();
  starts = [];
  exits = new Map();
  adopted = new Set();
  records = {};
  faults = [];
});

function supervise(): Supervisor {
  const supervisor = createSupervisor({
    wanted: () => wanted,
    mayStart: (name) => !held.has(name),
    start(name) {
      const fault = faults.shift();
      if (fault) throw fault;
      starts.push(name);
      const identity: ProcessIdentity = { pid: starts.length, startTime: '1' };
      return { identity, onExit: (call) => exits.set(name, call) };
    },
    isRunning: ({ pid }) => adopted.has(pid),
    records,
    save(saved) {
      records = saved;
    },
    clock,
    logger: silentLogger,
  });
  supervisor.reconcile();
  return supervisor;
}

const exit = (name: string, reason = 'killed by SIGKILL') => exits.get(name)?.(reason);

describe('the supervisor of a cluster', () => {
  test('starts all processes immediately', () => {
    supervise();
    assert.deepEqual(starts, ['control-plane', 'node-1']);
    assert.deepEqual(records['node-1']?.identity, { pid: 2, startTime: '1' });
  });

  test('starts a process once what it needs is there', () => {
    held.add('node-1');
    supervise();
    clock.advance(POLL_MS);
    assert.deepEqual(starts, ['control-plane']);
    held.clear();
    clock.advance(POLL_MS);
    assert.deepEqual(starts, ['control-plane', 'node-1']);
  });

  test('restarts processes that end, and records the reason', () => {
    supervise();
    exit('node-1');
    assert.equal(starts.length, 2);
    assert.equal(records['node-1']?.lastExit?.reason, 'killed by SIGKILL');
    clock.advance(POLL_MS);
    assert.deepEqual(starts.slice(2), ['node-1']);
    assert.equal(records['node-1']?.restarts, 1);
    assert.equal(records['control-plane']?.restarts, 0);
  });

  test('waits longer after each failure, at most half a minute', () => {
    supervise();
    const pauses = Array.from({ length: 10 }, () => {
      exit('node-1');
      const { startAt } = records['node-1'] ?? {};
      const pause = (startAt ?? 0) - clock.now();
      clock.advance(pause + POLL_MS);
      return pause;
    });
    assert.deepEqual(pauses.slice(0, 4), [200, 400, 800, 1600]);
    assert.equal(pauses.at(-1), MAX_PAUSE_MS);
    assert.equal(records['node-1']?.restarts, 10);
  });

  test('resets the failure count after a long run', () => {
    supervise();
    for (let i = 0; i < 5; i++) {
      exit('node-1');
      clock.advance(MAX_PAUSE_MS);
    }
    clock.advance(STABLE_MS);
    exit('node-1');
    assert.equal((records['node-1']?.startAt ?? 0) - clock.now(), 200);
  });

  test('starts waiting processes immediately on request', () => {
    const supervisor = supervise();
    exit('node-1');
    supervisor.hurry();
    assert.deepEqual(starts.slice(2), ['node-1']);
  });

  test('retries a process that failed to start', () => {
    faults.push(new Error('address in use'));
    supervise();
    assert.deepEqual(starts, ['node-1']);
    assert.equal(records['control-plane']?.lastExit?.reason, 'failed to start: address in use');
    clock.advance(POLL_MS);
    assert.deepEqual(starts, ['node-1', 'control-plane']);
  });

  test('starts an added node, and does not restart a removed one', () => {
    supervise();
    wanted = ['control-plane', 'node-2'];
    clock.advance(POLL_MS);
    exit('node-1');
    clock.advance(MAX_PAUSE_MS);
    assert.deepEqual(starts, ['control-plane', 'node-1', 'node-2']);
    assert.deepEqual(Object.keys(records).sort(), ['control-plane', 'node-2']);
  });

  test('a successor adopts the processes and restarts them when they end', () => {
    supervise().close();
    adopted = new Set([1, 2]);
    supervise();
    clock.advance(MAX_PAUSE_MS);
    assert.equal(starts.length, 2);
    adopted.delete(2);
    clock.advance(POLL_MS);
    clock.advance(POLL_MS);
    assert.deepEqual(starts.slice(2), ['node-1']);
    assert.match(records['node-1']?.lastExit?.reason ?? '', /^ended for an unknown reason: see node-1\.log$/);
  });

  test('starts nothing after it is closed', () => {
    const supervisor = supervise();
    supervisor.close();
    exit('node-1');
    clock.advance(MAX_PAUSE_MS);
    assert.equal(starts.length, 2);
  });
});
