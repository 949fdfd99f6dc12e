import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { manualClock } from './clock.ts';
import { createReconcileLoop, type Programmed } from './reconcile-loop.ts';

const VERIFY_MS = 60_000;

interface Scene {
  readonly loop: ReturnType<typeof createReconcileLoop>;
  /** The calls: "change", "everything", "verify", each with " fails" if it did. */
  readonly calls: string[];
  /** The results of the next programmings; default: complete. */
  readonly results: (Partial<Programmed> | Error)[];
  /** Whether the kernel differs when it is verified next. */
  differs: boolean;
  /** Ends the programming in progress, if programmings wait. */
  release: (() => void) | null;
  isHeld: boolean;
  pass(ms?: number): Promise<void>;
}

function open(minPeriodMs = 0): Scene {
  const clock = manualClock();
  const scene: Scene = {
    calls: [],
    results: [],
    differs: false,
    release: null,
    isHeld: false,
    async pass(ms = 0) {
      clock.advance(ms);
      for (let i = 0; i < 10; i++) await turn();
    },
    loop: createReconcileLoop('test', {
      async program(whole) {
        const result = scene.results.shift() ?? {};
        scene.calls.push(`${whole ? 'everything' : 'change'}${result instanceof Error ? ' fails' : ''}`);
        if (scene.isHeld) await new Promise<void>((resolve) => (scene.release = resolve));
        if (result instanceof Error) throw result;
        return { refused: false, dirty: false, ...result };
      },
      async verify() {
        scene.calls.push('verify');
        return scene.differs;
      },
      verifyPeriodMs: VERIFY_MS,
      minPeriodMs,
      maxBackoffMs: 400,
      clock,
      onFailed: (_, { retryMs }) => scene.calls.push(`again in ${retryMs}`),
    }),
  };
  return scene;
}

async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(() => (settled = true));
  await turn();
  return settled;
}

test('the first change programs everything, later ones what has changed, those of one turn together', async () => {
  const { loop, calls, pass } = open();
  loop.changed();
  await pass();
  loop.changed();
  loop.changed();
  await pass();
  assert.deepEqual(calls, ['everything', 'change']);
  await loop.close();
});

test('settled resolves when the changes before it are in the kernel, also after failures', async () => {
  const scene = open();
  const { loop, results, pass } = scene;
  assert.ok(await isSettled(loop.settled()));
  results.push(new Error('no memory'));
  loop.changed();
  const settled = loop.settled();
  await pass();
  assert.ok(!(await isSettled(settled)));
  assert.equal(loop.failure, 'no memory');
  await pass(100);
  assert.ok(await isSettled(settled));
  assert.equal(loop.failure, null);
  await loop.close();
});

test('settled does not wait for changes after it', async () => {
  const scene = open();
  const { loop, pass } = scene;
  scene.isHeld = true;
  loop.changed();
  await pass();
  const settled = loop.settled();
  loop.changed();
  scene.release?.();
  await pass();
  assert.ok(await isSettled(settled));
  assert.ok(!(await isSettled(loop.settled())));
  scene.release?.();
  await loop.close();
});

test('a refusal is tried again although everything was programmed before its first retry', async () => {
  const { loop, calls, results, pass } = open();
  results.push({ refused: true }, { refused: true });
  loop.changed();
  await pass(50);
  loop.rewrite();
  await pass();
  assert.deepEqual(calls, ['everything', 'everything']);
  // The first retry would have been after 100 ms; the second refusal is retried after 200 ms.
  await pass(100);
  assert.deepEqual(calls, ['everything', 'everything']);
  await pass(100);
  assert.deepEqual(calls, ['everything', 'everything', 'everything']);
  await loop.close();
});

test('failures are repeated with growing delays up to the longest, and changes do not shorten them', async () => {
  const { loop, calls, results, pass } = open();
  results.push(...Array.from({ length: 4 }, () => new Error('no memory')));
  loop.changed();
  await pass();
  for (const ms of [100, 200, 400]) {
    loop.changed({ urgent: true });
    await pass(ms - 1);
    await pass(1);
  }
  await pass(400);
  const failed = (ms: number) => ['everything fails', `again in ${ms}`];
  assert.deepEqual(calls, [...[100, 200, 400, 400].flatMap(failed), 'everything']);
  await loop.close();
});

test('after refusals everything is programmed again later; changes are programmed meanwhile', async () => {
  const { loop, calls, results, pass } = open();
  results.push({ refused: true });
  loop.changed();
  await pass();
  loop.changed();
  await pass();
  await pass(100);
  assert.deepEqual(calls, ['everything', 'change', 'everything']);
  await loop.close();
});

test('a rewrite that is asked for while everything is programmed happens afterwards', async () => {
  const scene = open();
  const { loop, calls, pass } = scene;
  scene.isHeld = true;
  loop.changed();
  await pass();
  loop.rewrite();
  scene.release?.();
  await pass();
  scene.release?.();
  await pass();
  assert.deepEqual(calls, ['everything', 'everything']);
  await loop.close();
});

test('the kernel is verified after a time without work; if it differs, everything is programmed', async () => {
  const scene = open();
  const { loop, calls, pass } = scene;
  loop.changed();
  await pass();
  await pass(VERIFY_MS);
  scene.differs = true;
  loop.check();
  await pass();
  assert.deepEqual(calls, ['everything', 'verify', 'verify', 'everything']);
  await loop.close();
});

test('a task runs between two programmings, and can state what it has programmed', async () => {
  const { loop, calls, results, pass } = open();
  loop.changed();
  await pass();
  const done = loop.exclusively(async (control) => {
    control.invalidate();
    calls.push('task');
    control.programmed({ refused: false, dirty: false });
    return 7;
  });
  loop.changed();
  await pass();
  assert.equal(await done, 7);
  results.push(new Error('no memory'));
  const failed = loop.exclusively((control) => control.program());
  await pass();
  await failed;
  assert.deepEqual(calls, ['everything', 'task', 'change', 'change fails', 'again in 100']);
  await loop.close();
});

test('after close, nothing starts, and tasks are rejected', async () => {
  const scene = open();
  const { loop, calls, pass } = scene;
  scene.isHeld = true;
  loop.changed();
  await pass();
  const waiting = loop.exclusively(async () => {});
  const closed = loop.close();
  await assert.rejects(waiting, /the test is closed/);
  await assert.rejects(
    loop.exclusively(async () => {}),
    /the test is closed/,
  );
  loop.changed();
  assert.ok(!(await isSettled(closed)));
  scene.release?.();
  await closed;
  assert.deepEqual(calls, ['everything']);
});
