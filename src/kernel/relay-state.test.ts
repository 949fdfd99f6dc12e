import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Direction, RELAY_BEGINS, type RelayAction, type RelayEvent, relayStep } from './relay-state.ts';

type Step = readonly [Direction, RelayEvent, RelayAction];

test('what a relay of two sockets does next', () => {
  const rows: readonly (readonly [string, ...Step[]])[] = [
    ['one side ends, later the other', ['there', 'end', 'shut'], ['back', 'end', 'close']],
    ['the server ends first', ['back', 'end', 'shut'], ['there', 'end', 'close']],
    [
      'a side that takes no more is read for again when it has taken all',
      ['there', 'blocked', 'await'],
      ['there', 'flushed', 'read'],
      ['there', 'blocked', 'await'],
    ],
    [
      'a side that takes only a part of what was held goes on waiting',
      ['there', 'blocked', 'await'],
      ['there', 'blocked', 'nothing'],
      ['there', 'flushed', 'read'],
    ],
    [
      'the end waits until held bytes are taken',
      ['back', 'blocked', 'await'],
      ['back', 'end', 'nothing'],
      ['back', 'flushed', 'read'],
      ['back', 'end', 'shut'],
    ],
    [
      'one side ends while bytes to it are held',
      ['back', 'blocked', 'await'],
      ['there', 'end', 'shut'],
      ['back', 'flushed', 'read'],
      ['back', 'end', 'close'],
    ],
    ['an end is passed on once', ['there', 'end', 'shut'], ['there', 'end', 'nothing']],
    ['a reset at the beginning', ['there', 'failure', 'reset']],
    ['a reset while bytes are held', ['there', 'blocked', 'await'], ['back', 'failure', 'reset']],
    ['a reset after a half-close', ['there', 'end', 'shut'], ['there', 'failure', 'reset']],
    ['nothing was held', ['there', 'flushed', 'nothing']],
  ];
  for (const [title, ...steps] of rows) {
    let state = RELAY_BEGINS;
    for (const [direction, event, action] of steps) {
      const next = relayStep(state, direction, event);
      assert.equal(next.action, action, `${title}: ${direction} ${event}`);
      state = next.state;
    }
  }
});
