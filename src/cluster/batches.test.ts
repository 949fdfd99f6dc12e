import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createBatches } from './batches.ts';

function scene(max = 3) {
  const sent: string[] = [];
  const gates: (() => void)[] = [];
  const batches = createBatches<string, string>({
    max,
    soon: setImmediate,
    async send(place, questions) {
      sent.push(`${place}: ${questions.join(' ')}`);
      await new Promise<void>((resolve) => gates.push(resolve));
      if (questions.includes('lost')) throw new Error('the connection is lost');
      return questions.map((one) => (one === 'bad' ? new Error('no such pod') : one.toUpperCase()));
    },
  });
  const open = async () => {
    gates.shift()?.();
    await nextTurn();
    await nextTurn();
  };
  return { batches, sent, open };
}

test('questions of one moment are sent together, later ones when the first are answered', async () => {
  const { batches, sent, open } = scene();
  const first = Promise.all(['a', 'b'].map((one) => batches.ask('node-1', one)));
  await nextTurn();
  const later = Promise.all(['c', 'd', 'e', 'f'].map((one) => batches.ask('node-1', one)));
  const other = batches.ask('node-2', 'g');
  await nextTurn();
  assert.deepEqual(sent, ['node-1: a b', 'node-2: g']);
  await open();
  assert.deepEqual(await first, ['A', 'B']);
  assert.deepEqual(sent.slice(2), ['node-1: c d e']);
  await open();
  assert.equal(await other, 'G');
  await open();
  await open();
  assert.deepEqual(await later, ['C', 'D', 'E', 'F']);
  assert.deepEqual(sent.slice(3), ['node-1: f']);
});

test('an error is the answer to one question, a lost connection to all', async () => {
  const { batches, open } = scene();
  const answers = Promise.allSettled(['a', 'bad'].map((one) => batches.ask('node-1', one)));
  await nextTurn();
  await open();
  assert.deepEqual(
    (await answers).map((one) => (one.status === 'fulfilled' ? one.value : one.reason.message)),
    ['A', 'no such pod'],
  );
  const lost = Promise.allSettled(['a', 'lost'].map((one) => batches.ask('node-1', one)));
  await nextTurn();
  await open();
  assert.deepEqual(
    (await lost).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
});
