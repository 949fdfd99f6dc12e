/**
 * The kernel's state relative to the wanted state:
 *
 * | phase        | the kernel has                                  | the next programming             |
 * | ------------ | ----------------------------------------------- | -------------------------------- |
 * | `unsynced`   | unknown contents                                | everything                       |
 * | `synced`     | the wanted state of the last programming        | the change since                 |
 * | `incomplete` | the same, less what it refused                  | the change since; at `retryAt` everything |
 * | `failed`     | unknown contents                                | everything, not before `retryAt` |
 */
export type Phase = 'unsynced' | 'synced' | 'incomplete' | 'failed';

/** The state of a reconcile loop between two programmings. Times are milliseconds of the loop's clock. */
export interface LoopState {
  readonly phase: Phase;
  /** The time at which everything is programmed after a failure or a rejection; null in the other phases. */
  readonly retryAt: number | null;
  /** The delay after the next failure or rejection. */
  readonly backoffMs: number;
  readonly lastAppliedAt: number | null;
  /** The time since which a change has been waiting. */
  readonly pendingSince: number | null;
}

export type LoopEvent =
  /** The wanted state changed; an urgent change ignores the minimum period. */
  | { readonly kind: 'changed'; readonly urgent: boolean }
  /**
   * The programming ended. `whole`: of everything, not of a change. `refused`: the kernel refused a part that a retry may
   * program. `dirty`: the wanted state changed meanwhile.
   */
  | {
      readonly kind: 'programmed';
      readonly whole: boolean;
      readonly refused: boolean;
      readonly dirty: boolean;
    }
  /** The programming failed. */
  | { readonly kind: 'failed' }
  /** A retry timer fired; timers of earlier retries may still fire. */
  | { readonly kind: 'retry' }
  /** The kernel's contents are unknown: another program changed them, or another way to program begins. */
  | { readonly kind: 'invalidated' };

/** The loop's next action; absent: none. */
export interface LoopAction {
  /** Program after this many milliseconds. */
  readonly programAfter?: number;
  /** Send `retry` after this many milliseconds. */
  readonly retryAfter?: number;
}

export interface LoopStep {
  readonly state: LoopState;
  readonly action: LoopAction;
}

export interface LoopTiming {
  /** The minimum time between two programmings. */
  readonly minPeriodMs: number;
  /** The longest delay after a failure or refusals. */
  readonly maxBackoffMs: number;
}

const MIN_BACKOFF_MS = 100;
export const MAX_BACKOFF_MS = 30_000;

export const INITIAL_STATE: LoopState = {
  phase: 'unsynced',
  retryAt: null,
  backoffMs: MIN_BACKOFF_MS,
  lastAppliedAt: null,
  pendingSince: null,
};

/** Returns the state after an event and the next action. */
export function step(state: LoopState, event: LoopEvent, now: number, timing: LoopTiming): LoopStep {
  const { minPeriodMs, maxBackoffMs } = timing;
  switch (event.kind) {
    case 'changed': {
      const changed = { ...state, pendingSince: state.pendingSince ?? now };
      // A busy cluster changes continuously: without this, changes would defeat the back-off.
      if (state.phase === 'failed') return { state: changed, action: {} };
      const earliest = state.lastAppliedAt === null || event.urgent ? now : state.lastAppliedAt + minPeriodMs;
      return { state: changed, action: { programAfter: Math.max(0, earliest - now) } };
    }
    case 'programmed': {
      const applied = { ...state, lastAppliedAt: now, pendingSince: event.dirty ? now : null };
      if (event.refused && (event.whole || state.phase !== 'incomplete'))
        return retryLater(applied, 'incomplete', now, maxBackoffMs);
      // A change does not tell whether what was refused earlier would succeed now.
      if (!event.whole) return { state: applied, action: {} };
      return {
        state: { ...applied, phase: 'synced', retryAt: null, backoffMs: MIN_BACKOFF_MS },
        action: {},
      };
    }
    case 'failed':
      return retryLater(state, 'failed', now, maxBackoffMs);
    case 'retry':
      if (state.retryAt === null || now < state.retryAt) return { state, action: {} };
      return { state: { ...state, phase: 'unsynced', retryAt: null }, action: { programAfter: 0 } };
    case 'invalidated':
      return { state: { ...state, phase: 'unsynced', retryAt: null }, action: {} };
  }
}

function retryLater(
  state: LoopState,
  phase: 'incomplete' | 'failed',
  now: number,
  maxBackoffMs: number,
): LoopStep {
  const { backoffMs } = state;
  return {
    state: {
      ...state,
      phase,
      retryAt: now + backoffMs,
      backoffMs: Math.min(2 * backoffMs, maxBackoffMs),
    },
    action: { retryAfter: backoffMs },
  };
}
