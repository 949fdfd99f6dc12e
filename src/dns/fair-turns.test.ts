import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFairTurns } from './fair-turns.ts';

/** Steps take a millisecond of a clock that only they move. */
function scene(budgetMs: number) {
  let time = 0;
  const later: (() => void)[] = [];
  const done: string[] = [];
  const turns = createFairTurns(
    budgetMs,
    () => time,
    (call) => later.push(call),
  );
  return {
    done,
    run(name: string, steps: number, whenDone = () => {}) {
      let left = steps;
      turns.run(() => {
        time++;
        done.push(name);
        if (--left === 0) whenDone();
        return left > 0;
      });
    },
    nextTurn() {
      for (const call of later.splice(0)) call();
    },
  };
}

test('a subject with much to do has one step at a time, and all have the budget of a turn', () => {
  const { done, run, nextTurn } = scene(3);
  run('a', 100);
  assert.deepEqual(done.splice(0), ['a', 'a', 'a']);
  run('b', 2);
  run('c', 1);
  assert.deepEqual(done.splice(0), [], 'the budget of this turn is used up');
  nextTurn();
  assert.deepEqual(done.splice(0), ['a', 'b', 'c']);
  nextTurn();
  assert.deepEqual(done.splice(0), ['a', 'b', 'a']);
});

test('subjects that come in one turn share its budget', () => {
  const { done, run, nextTurn } = scene(2);
  run('a', 1);
  run('b', 1);
  run('c', 1);
  assert.deepEqual(done, ['a', 'b']);
  nextTurn();
  assert.deepEqual(done, ['a', 'b', 'c']);
  nextTurn();
  nextTurn();
  run('d', 1);
  assert.deepEqual(done, ['a', 'b', 'c', 'd']);
});

test('a subject that comes during a step waits for its end', () => {
  const { done, run } = scene(10);
  run('a', 1, () => run('b', 1));
  assert.deepEqual(done, ['a', 'b']);
});
