import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { isRunning } from '../../kernel/process-identity.ts';
import { systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { PodNetwork } from '../../runtime/pod-network.ts';
import type { RuntimeConfiguration } from './messages.ts';
import { type RuntimeProcess, startRuntimeProcess } from './runtime-process.ts';
import { readRuntimeRecord, runningRuntime } from './runtime-record.ts';

let stateDir: string;
let runtime: RuntimeProcess | null = null;
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'flt-runtime-'));
});
afterEach(async () => {
  await runtime?.close();
  runtime = null;
  rmSync(stateDir, { recursive: true, force: true });
});

const network: PodNetwork = {
  attach: async () => ({ ips: [] }),
  detach: async () => {},
  addresses: () => null,
  collect: async () => [],
};

/** Starts a runtime that behaves in this way once it is ready. */
function start(behaviour: string, bounds: { memoryMiB?: number; answerMs?: number } = {}): RuntimeProcess {
  const started = startRuntimeProcess({
    program: {
      file: process.execPath,
      words: () => [join(import.meta.dirname, 'testing', 'odd-runtime.ts'), behaviour],
    },
    stateDir,
    pods: {
      cgroupParent: '/fairlead-test-without-groups',
      runtime: { memoryMiB: 4096, answerMs: 60_000, ...bounds },
    },
    clock: systemClock,
    logger: silentLogger,
  });
  started.configure({ configuration: {} as RuntimeConfiguration, flags: {} });
  runtime = started;
  return started;
}

const serve = (started: RuntimeProcess): Promise<void> =>
  started.serve({
    network,
    attached: () => [],
    surroundings: () => ({ nameServers: [], apiServers: [] }),
    allocatable: { current: () => ({}), refresh: async () => {}, onChange() {} },
    serving: { cert: '', key: '', clientCa: '' },
  });

describe('a runtime that', () => {
  const rows: [string, { memoryMiB?: number; answerMs?: number }, RegExp][] = [
    ['exits', {}, /^exited with status 7$/],
    ['is stuck', { answerMs: 2000 }, /^killed: it did not answer for \d+ s$/],
    ['uses too much memory', { memoryMiB: 256 }, /^killed: it used \d+ MiB of memory, more than 256$/],
    ['sends a malformed message', {}, /^its link to the agent has failed: .*malformed message "x"/],
    ['outlives its link', {}, /^its link to the agent has failed: .*malformed message "x"/],
    ['is killed by its heap', {}, /^aborted, as Node.js does when its heap is full$/],
  ];
  for (const [behaviour, bounds, reason] of rows) {
    test(`${behaviour}: it is started again, and the reason is known`, async () => {
      const started = start(behaviour, bounds);
      const reasons: string[] = [];
      started.onEnd((why) => reasons.push(why));
      await serve(started);
      await eventually(
        () => readRuntimeRecord(stateDir),
        ({ restarts, identity }) => restarts >= 1 && isRunning(identity),
        60_000,
      );
      assert.match(reasons[0] ?? '', reason);
    });
  }
});

test('close ends it; the next agent counts its start as another', async () => {
  await serve(start('works'));
  const first = runningRuntime(stateDir);
  assert.ok(first);
  await runtime?.close();
  assert.ok(!isRunning(first));
  await serve(start('works'));
  const { restarts, lastExit } = readRuntimeRecord(stateDir);
  assert.equal(restarts, 1);
  assert.equal(lastExit?.reason, 'its agent has ended');
});

test('a program that cannot be started is a problem of the node', async () => {
  const started = startRuntimeProcess({
    program: { file: '/nonexistent/program', words: () => [] },
    stateDir,
    pods: { cgroupParent: '/', runtime: { memoryMiB: 512, answerMs: 2000 } },
    clock: systemClock,
    logger: silentLogger,
  });
  runtime = started;
  await eventually(
    () => started.problems(),
    ({ lasting }) => lasting !== null,
    60_000,
  );
  assert.match(started.problems().lasting ?? '', /the pod runtime .*: failed to start/);
});
