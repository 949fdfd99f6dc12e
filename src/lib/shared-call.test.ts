import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { manualClock } from './clock.ts';
import { shareCalls } from './shared-call.ts';

function recorder() {
  const started: { resolve(value: number): void; reject(error: Error): void }[] = [];
  const clock = manualClock();
  const ask = shareCalls(
    () => new Promise<number>((resolve, reject) => void started.push({ resolve, reject })),
    clock,
  );
  return { started, ask, clock };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

describe('calls that are shared', () => {
  test('one who asks while a call runs gets the next one, with all who wait', async () => {
    const { started, ask } = recorder();
    const first = ask();
    const others = [ask(), ask(), ask()];
    assert.equal(started.length, 1);
    started[0]?.resolve(1);
    assert.equal(await first, 1);
    await settled();
    assert.equal(started.length, 2);
    const late = ask();
    started[1]?.resolve(2);
    assert.deepEqual(await Promise.all(others), [2, 2, 2]);
    await settled();
    started[2]?.resolve(3);
    assert.equal(await late, 3);
    assert.equal(started.length, 3);
  });

  test('a call after the last one has ended starts at once', async () => {
    const { started, ask } = recorder();
    for (const [index, value] of [1, 2, 3].entries()) {
      const asked = ask();
      started[index]?.resolve(value);
      assert.equal(await asked, value);
      await settled();
    }
  });

  test('a failure reaches only those who share it', async () => {
    const { started, ask } = recorder();
    const first = ask();
    const second = ask();
    started[0]?.reject(new Error('no answer'));
    await assert.rejects(first, /no answer/);
    await settled();
    started[1]?.resolve(2);
    assert.equal(await second, 2);
  });

  test('one who accepts an earlier result gets it until it is too old', async () => {
    const { started, ask, clock } = recorder();
    const first = ask();
    clock.advance(100);
    const early = ask(100);
    assert.equal(started.length, 1);
    started[0]?.resolve(1);
    assert.deepEqual(await Promise.all([first, early]), [1, 1]);
    await settled();
    assert.equal(await ask(100), 1);
    clock.advance(1);
    const late = ask(100);
    started[1]?.resolve(2);
    assert.equal(await late, 2);
    assert.equal(started.length, 2);
  });

  test('no failure is an earlier result', async () => {
    const { started, ask } = recorder();
    const first = ask();
    started[0]?.reject(new Error('no answer'));
    await assert.rejects(first, /no answer/);
    await settled();
    const second = ask(1000);
    started[1]?.resolve(2);
    assert.equal(await second, 2);
  });
});
