import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { type ApiHealthProbe, createApiHealthProbe } from './api-health-probe.ts';

let now: number;
let apiHealth: ApiHealthProbe;
let asked: PromiseWithResolvers<unknown>[];
beforeEach(() => {
  now = 1000;
  asked = [];
  const ask = () => {
    const question = Promise.withResolvers<unknown>();
    asked.push(question);
    return question.promise;
  };
  apiHealth = createApiHealthProbe({ ask, steady: () => now, slowMs: () => 100, onResult: () => {} });
});

/** Sends a probe, and answers after this time. */
async function beat(takes: number, answers = true): Promise<void> {
  apiHealth.probe();
  now += takes;
  if (answers) asked.at(-1)?.resolve(null);
  else asked.at(-1)?.reject(new Error('away'));
  await new Promise((resolve) => setImmediate(resolve));
}

test('not healthy before the first probe', () => assert.equal(apiHealth.healthyMs(), 0));

test('healthy since the first of consecutive timely probes', async () => {
  await beat(5);
  now += 60;
  await beat(5);
  assert.equal(apiHealth.healthyMs(), 70);
});

test('a late or missing answer ends it', async () => {
  for (const [takes, answers] of [
    [101, true],
    [5, false],
  ] as const) {
    await beat(5);
    now += 60;
    await beat(takes, answers);
    assert.equal(apiHealth.healthyMs(), 0);
    now += 60;
    await beat(5);
    assert.equal(apiHealth.healthyMs(), 5);
    now += 60;
  }
});

test('it is not healthy while an answer is overdue', async () => {
  await beat(5);
  now += 60;
  apiHealth.probe();
  now += 151;
  assert.equal(apiHealth.healthyMs(), 0);
});

test('results before a pause do not count', async () => {
  await beat(5);
  now += 5000;
  assert.equal(apiHealth.healthyMs(), 0);
  await beat(5);
  assert.equal(apiHealth.healthyMs(), 5);
});

test('probes are neither sent in quick succession nor concurrently', async () => {
  await beat(5);
  apiHealth.probe();
  assert.equal(asked.length, 1);
  now += 60;
  apiHealth.probe();
  now += 60;
  apiHealth.probe();
  assert.equal(asked.length, 2);
});
