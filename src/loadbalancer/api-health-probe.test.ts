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
  apiHealth = createApiHealthProbe({ ask, steady: () => now, slowMs: 100, onResult: () => {} });
});

/** Asks, and answers so much later. */
async function beat(takes: number, answers = true): Promise<void> {
  apiHealth.probe();
  now += takes;
  if (answers) asked.at(-1)?.resolve(null);
  else asked.at(-1)?.reject(new Error('away'));
  await new Promise((resolve) => setImmediate(resolve));
}

test('nothing is known before it was asked', () => assert.equal(apiHealth.healthyMs(), 0));

test('healthy since the first question of those that were answered in time', async () => {
  await beat(5);
  now += 60;
  await beat(5);
  assert.equal(apiHealth.healthyMs(), 70);
});

test('a late answer ends it, and so does none', async () => {
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

test('while an answer is missing for too long, it is not healthy', async () => {
  await beat(5);
  now += 60;
  apiHealth.probe();
  now += 151;
  assert.equal(apiHealth.healthyMs(), 0);
});

test('what was known before a pause does not count', async () => {
  await beat(5);
  now += 5000;
  assert.equal(apiHealth.healthyMs(), 0);
  await beat(5);
  assert.equal(apiHealth.healthyMs(), 5);
});

test('it is not asked again at once, nor twice at a time', async () => {
  await beat(5);
  apiHealth.probe();
  assert.equal(asked.length, 1);
  now += 60;
  apiHealth.probe();
  now += 60;
  apiHealth.probe();
  assert.equal(asked.length, 2);
});
