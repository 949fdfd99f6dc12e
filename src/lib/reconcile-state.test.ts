import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  INITIAL_STATE,
  type LoopAction,
  type LoopEvent,
  type LoopState,
  MAX_BACKOFF_MS,
  step,
} from './reconcile-state.ts';

const NOW = 1_000_000;
const MIN_SYNC_MS = 500;
const TIMING = { minPeriodMs: MIN_SYNC_MS, maxBackoffMs: MAX_BACKOFF_MS };

const synced: LoopState = { ...INITIAL_STATE, phase: 'synced', lastAppliedAt: NOW - 100 };
const incomplete: LoopState = { ...synced, phase: 'incomplete', retryAt: NOW + 200, backoffMs: 400 };
const failed: LoopState = { ...synced, phase: 'failed', retryAt: NOW + 200, backoffMs: 400 };
const due: LoopState = { ...failed, retryAt: NOW };

const changed: LoopEvent = { kind: 'changed', urgent: false };
const programmed = (fields: Partial<Extract<LoopEvent, { kind: 'programmed' }>> = {}): LoopEvent => ({
  kind: 'programmed',
  whole: false,
  refused: false,
  dirty: false,
  ...fields,
});

const rows: {
  name: string;
  state: LoopState;
  event: LoopEvent;
  becomes: Partial<LoopState>;
  action: LoopAction;
}[] = [
  {
    name: 'the first change is programmed at once',
    state: INITIAL_STATE,
    event: changed,
    becomes: { pendingSince: NOW },
    action: { programAfter: 0 },
  },
  {
    name: 'a change soon after a programming waits for the minimum time between them',
    state: synced,
    event: changed,
    becomes: { pendingSince: NOW },
    action: { programAfter: MIN_SYNC_MS - 100 },
  },
  {
    name: 'an urgent change does not wait',
    state: synced,
    event: { kind: 'changed', urgent: true },
    becomes: { pendingSince: NOW },
    action: { programAfter: 0 },
  },
  {
    name: 'a further change keeps the time since which the first waits',
    state: { ...synced, pendingSince: NOW - 7 },
    event: changed,
    becomes: {},
    action: { programAfter: MIN_SYNC_MS - 100 },
  },
  {
    name: 'a change while a failure backs off waits for the retry',
    state: failed,
    event: { kind: 'changed', urgent: true },
    becomes: { pendingSince: NOW },
    action: {},
  },
  {
    name: 'everything programmed: the back-off is reset to its minimum',
    state: { ...failed, phase: 'unsynced', retryAt: null, pendingSince: NOW - 5 },
    event: programmed({ whole: true }),
    becomes: { phase: 'synced', retryAt: null, backoffMs: 100, lastAppliedAt: NOW, pendingSince: null },
    action: {},
  },
  {
    name: 'a change programmed',
    state: { ...synced, pendingSince: NOW - 5 },
    event: programmed(),
    becomes: { lastAppliedAt: NOW, pendingSince: null },
    action: {},
  },
  {
    name: 'the table changed during a programming: the change waits from then on',
    state: { ...synced, pendingSince: NOW - 5 },
    event: programmed({ dirty: true }),
    becomes: { lastAppliedAt: NOW, pendingSince: NOW },
    action: {},
  },
  {
    name: 'a refusal in a change: everything is programmed again later',
    state: synced,
    event: programmed({ refused: true }),
    becomes: { phase: 'incomplete', retryAt: NOW + 100, backoffMs: 200, lastAppliedAt: NOW },
    action: { retryAfter: 100 },
  },
  {
    name: 'a further refusal in a change does not postpone the retry',
    state: incomplete,
    event: programmed({ refused: true }),
    becomes: { lastAppliedAt: NOW },
    action: {},
  },
  {
    name: 'a change without a refusal leaves earlier refusals to the retry',
    state: incomplete,
    event: programmed(),
    becomes: { lastAppliedAt: NOW },
    action: {},
  },
  {
    name: 'a refusal in the retry doubles the delay',
    state: { ...incomplete, phase: 'unsynced', retryAt: null },
    event: programmed({ whole: true, refused: true }),
    becomes: { phase: 'incomplete', retryAt: NOW + 400, backoffMs: 800, lastAppliedAt: NOW },
    action: { retryAfter: 400 },
  },
  {
    name: 'a failure is retried after the delay, which doubles',
    state: synced,
    event: { kind: 'failed' },
    becomes: { phase: 'failed', retryAt: NOW + 100, backoffMs: 200 },
    action: { retryAfter: 100 },
  },
  {
    name: 'the maximum delay is half a minute',
    state: { ...synced, backoffMs: 25_600 },
    event: { kind: 'failed' },
    becomes: { phase: 'failed', retryAt: NOW + 25_600, backoffMs: 30_000 },
    action: { retryAfter: 25_600 },
  },
  {
    name: 'a retry that is due programs everything',
    state: due,
    event: { kind: 'retry' },
    becomes: { phase: 'unsynced', retryAt: null },
    action: { programAfter: 0 },
  },
  {
    name: 'the timer of an earlier retry is ignored',
    state: failed,
    event: { kind: 'retry' },
    becomes: {},
    action: {},
  },
  {
    name: 'the timer of a retry that is no longer needed is ignored',
    state: synced,
    event: { kind: 'retry' },
    becomes: {},
    action: {},
  },
  {
    name: 'unknown kernel contents end the wait for a retry',
    state: failed,
    event: { kind: 'invalidated' },
    becomes: { phase: 'unsynced', retryAt: null },
    action: {},
  },
];

for (const { name, state, event, becomes, action } of rows) {
  test(name, () => {
    assert.deepEqual(step(state, event, NOW, TIMING), { state: { ...state, ...becomes }, action });
  });
}
