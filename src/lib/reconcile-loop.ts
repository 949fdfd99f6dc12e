import type { Clock } from './clock.ts';
import { FairleadError, messageOf } from './errors.ts';
import { INITIAL_STATE, type LoopEvent, type LoopState, MAX_BACKOFF_MS, step } from './reconcile-state.ts';
import { createWorkQueue } from './work-queue.ts';

export interface ReconcileOptions {
  /**
   * Programs the changes since the last call; `whole`: everything. After a rejection the contents of the kernel are unknown:
   * everything is programmed after a delay, which grows.
   */
  readonly program: (whole: boolean) => Promise<Programmed>;
  /** Compares the kernel with what was programmed. If it resolves to true, they differ, and everything is programmed. */
  readonly verify: () => Promise<boolean>;
  /** After this time without work the kernel is verified. */
  readonly verifyPeriodMs: number;
  /** The minimum time between two programmings. */
  readonly minPeriodMs: number;
  /** The longest delay after a failure or refusals. Default: 30 s. */
  readonly maxBackoffMs?: number;
  readonly clock: Clock;
  /** Called after a failure. `whole`: of programming everything. */
  readonly onFailed: (error: unknown, attempt: { readonly whole: boolean; readonly retryMs: number }) => void;
}

/** The result of a programming. */
export interface Programmed {
  /** Whether the kernel refused a part that a later attempt may program. */
  readonly refused: boolean;
  /** Whether the wanted state changed meanwhile. */
  readonly dirty: boolean;
}

/** The control of a task over the loop that waits for it. */
export interface TaskControl {
  /** States that the contents of the kernel are unknown. */
  invalidate(): void;
  /** States that the task has programmed everything. */
  programmed(result: Programmed): void;
  /** Programs as the loop does, and reports a failure as it does. */
  program(): Promise<void>;
}

/** Keeps the kernel as wanted: one programming at a time, with all changes since the last one. */
export interface ReconcileLoop {
  /** Announces that the wanted state has changed; an urgent change ignores the minimum period. */
  changed(how?: { readonly urgent: boolean }): void;
  /** Programs everything: the contents of the kernel are unknown. */
  rewrite(): void;
  /** Verifies the kernel soon: another program may have changed it. */
  check(): void;
  /** Runs a task between two programmings. Rejects if the loop ends before. */
  exclusively<T>(task: (control: TaskControl) => Promise<T>): Promise<T>;
  /** Resolves when the kernel has the changes that were announced before the call. */
  settled(): Promise<void>;
  /** The time of the last programming, in the clock's milliseconds; null before the first. */
  readonly lastAppliedAt: number | null;
  /** The time since which a change has been waiting; null: none. */
  readonly pendingSince: number | null;
  /** Why the last programming failed; null: it did not. */
  readonly failure: string | null;
  /** Ends the loop after the work in progress. */
  close(): Promise<void>;
}

/** The kinds of work, each a key of the queue. `task`: the first of the tasks that callers wait for. */
type Work = 'program' | 'retry' | 'verify' | 'verify-when-idle' | 'task';

interface Task {
  readonly run: () => Promise<void>;
  readonly abandon: (reason: unknown) => void;
}

/** Starts a loop; the first `changed` starts the first programming. `name`: of what it keeps, for errors. */
export function createReconcileLoop(name: string, options: ReconcileOptions): ReconcileLoop {
  const { clock, minPeriodMs, verifyPeriodMs, maxBackoffMs = MAX_BACKOFF_MS } = options;
  const closing = new AbortController();
  const tasks: Task[] = [];
  /** In the order of their numbers. */
  const waiting: { readonly until: number; readonly resolve: () => void }[] = [];
  let state: LoopState = INITIAL_STATE;
  let lastWorkAt = clock.now();
  let failure: string | null = null;
  /** Kept until the next programming begins: one in progress may have written what is unknown now. */
  let isRewriteAsked = false;
  /** Numbers of the last announced and the last programmed change. */
  let [announced, reached] = [0, 0];

  const queue = createWorkQueue({
    process: (key) => WORK[key as Work](),
    // Programmings never overlap.
    concurrency: 1,
    clock,
    // The state machine schedules retries: the queue never sees a rejection.
    random: () => 1,
    signal: closing.signal,
  });
  const later = (work: Work, ms: number) => (ms > 0 ? queue.addAfter(work, ms) : queue.add(work));
  const send = (event: LoopEvent) => {
    const next = step(state, event, clock.now(), { minPeriodMs, maxBackoffMs });
    state = next.state;
    if (next.action.programAfter !== undefined) later('program', next.action.programAfter);
    if (next.action.retryAfter !== undefined) later('retry', next.action.retryAfter);
  };
  const afterWork = () => {
    lastWorkAt = clock.now();
    queue.addAfter('verify-when-idle', verifyPeriodMs);
  };

  const WORK: Readonly<Record<Work, () => Promise<void>>> = {
    program: () => guarded(program),
    async retry() {
      send({ kind: 'retry' });
      // The queue keeps one timer, the earliest: that of an earlier retry stands for the one that is due now.
      if (state.retryAt !== null) queue.addAfter('retry', Math.max(1, state.retryAt - clock.now()));
    },
    verify: () => guarded(repair),
    async 'verify-when-idle'() {
      const left = lastWorkAt + verifyPeriodMs - clock.now();
      if (left > 0) queue.addAfter('verify-when-idle', left);
      else await guarded(repair);
    },
    async task() {
      const task = tasks.shift();
      if (tasks.length > 0) queue.add('task');
      await task?.run();
      afterWork();
    },
  };

  /** Runs work after whose failure everything has to be programmed. */
  async function guarded(work: () => Promise<void>): Promise<void> {
    if (state.phase === 'failed') return;
    if (isRewriteAsked) send({ kind: 'invalidated' });
    isRewriteAsked = false;
    const whole = state.phase === 'unsynced';
    try {
      await work();
    } catch (error) {
      send({ kind: 'failed' });
      failure = messageOf(error);
      options.onFailed(error, { whole, retryMs: (state.retryAt ?? 0) - clock.now() });
    }
    afterWork();
  }
  async function program(): Promise<void> {
    const whole = state.phase === 'unsynced';
    const target = announced;
    settle(await options.program(whole), whole, target);
  }
  function settle(result: Programmed, whole: boolean, target: number): void {
    failure = null;
    send({ kind: 'programmed', whole, ...result });
    reached = target;
    const later = waiting.findIndex(({ until }) => until > reached);
    for (const { resolve } of waiting.splice(0, later < 0 ? waiting.length : later)) resolve();
  }
  async function repair(): Promise<void> {
    if (state.lastAppliedAt === null || !(await options.verify())) return;
    send({ kind: 'invalidated' });
    await program();
  }
  const control = (target: number): TaskControl => ({
    invalidate: () => send({ kind: 'invalidated' }),
    programmed: (result) => settle(result, true, target),
    program: () => guarded(program),
  });

  return {
    changed(how) {
      if (closing.signal.aborted) return;
      announced++;
      send({ kind: 'changed', urgent: how?.urgent === true });
    },
    rewrite() {
      if (closing.signal.aborted) return;
      announced++;
      isRewriteAsked = true;
      send({ kind: 'changed', urgent: true });
    },
    check: () => queue.add('verify'),
    exclusively<T>(task: (control: TaskControl) => Promise<T>): Promise<T> {
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      if (closing.signal.aborted) reject(closing.signal.reason);
      else {
        tasks.push({ run: () => task(control(announced)).then(resolve, reject), abandon: reject });
        queue.add('task');
      }
      return promise;
    },
    settled() {
      if (reached >= announced) return Promise.resolve();
      const until = announced;
      return new Promise((resolve) => waiting.push({ until, resolve }));
    },
    get lastAppliedAt() {
      return state.lastAppliedAt;
    },
    get pendingSince() {
      return state.pendingSince;
    },
    get failure() {
      return failure;
    },
    async close() {
      closing.abort(new FairleadError(`the ${name} is closed`, { op: name, code: 'ended' }));
      for (const { abandon } of tasks.splice(0)) abandon(closing.signal.reason);
      await queue.idle();
    },
  };
}
