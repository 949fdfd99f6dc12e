import type { ApplyReport, Dataplane, Drift } from '../dataplane/dataplane.ts';
import type { SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createWorkQueue } from '../lib/work-queue.ts';
import type { Change, Finding, FrontendKey, ServiceMap } from '../service/model.ts';
import type { Commit, ServiceTable } from '../service/service-table.ts';
import { INITIAL_STATE, type LoopEvent, type LoopState, step } from './loop-state.ts';

export interface ProxyOptions {
  readonly table: ServiceTable;
  readonly dataplane: Dataplane;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly minSyncPeriodMs: number;
  /** After this time without an update the kernel is compared with the programmed map, and repaired. */
  readonly syncPeriodMs: number;
  /** Returns the version of the objects in the table; read when their changes are taken. Default: "". */
  readonly version?: () => string;
  /** Called after each programming; its change and map are valid during the call only. */
  readonly onApplied?: (applied: Applied) => void;
  /** Called after a failed update, and after a full sync in which frontends were rejected. */
  readonly onFailed?: (whole: boolean) => void;
  /** Called with frontends that are rejected for the first time, or for a new reason. */
  readonly onRefused?: (refused: ApplyReport['failed'], map: ServiceMap) => void;
  readonly onFindings?: (added: readonly Finding[]) => void;
  readonly onDrift?: (drifts: readonly Drift[]) => void;
  /** Called after a mode switch, when the previous mode has no flows left. */
  readonly onDrained?: () => void;
}

export interface Applied {
  readonly change: Change;
  readonly map: ServiceMap;
  /** `ProxyOptions.version` of the programmed objects. */
  readonly version: string;
  /** A full sync, not only `change`. */
  readonly whole: boolean;
  readonly report: ApplyReport;
  readonly seconds: number;
}

/** Keeps the kernel in sync with the table: one call of the dataplane at a time, with all changes since the last one. */
export interface ServiceProxy {
  /** Announces that the table may have changed; an urgent change ignores the minimum time between programmings. */
  notify(options?: { readonly urgent: boolean }): void;
  /** Compares the kernel with the programmed map, and repairs it: another program may have changed it. */
  check(): void;
  /** Compares the kernel with the programmed map, without repairing it. */
  drifts(): Promise<readonly Drift[]>;
  /**
   * Programs another mode, then removes the current one: one of the two always handles new connections.
   * Rejects if the current mode stays; the caller then removes the state of `next`.
   */
  switchTo(next: Dataplane): Promise<void>;
  /** Works like `OwnListeners.has`, for the current mode and previous ones that still drain. */
  isListener(at: SocketAddress): boolean;
  /** Resolves after the first update: the kernel has all Services except rejected ones. */
  readonly programmed: Promise<void>;
  readonly dataplane: Dataplane;
  /** The time of the last complete update, in the clock's milliseconds; null before the first. */
  readonly lastAppliedAt: number | null;
  /** The last programmed map, valid until the next update. */
  readonly map: ServiceMap | null;
  /** The time since which a change has been waiting; null: none. */
  readonly pendingSince: number | null;
  /** Why the last programming failed; null: it did not. */
  readonly failure: string | null;
  /** Ends the loop and releases the dataplane; the kernel's state stays. */
  close(): Promise<void>;
}

/** The kinds of work, each a key of the queue. `task`: the first of the tasks that callers wait for. */
type Work = 'program' | 'retry' | 'verify' | 'verify-when-idle' | 'task';

interface Task {
  readonly run: () => Promise<void>;
  readonly abandon: (reason: unknown) => void;
}

/** Starts the loop; the first `notify` starts the first update. */
export function startProxy(options: ProxyOptions): ServiceProxy {
  const { table, clock, logger, minSyncPeriodMs, syncPeriodMs } = options;
  const closing = new AbortController();
  const first = Promise.withResolvers<void>();
  const tasks: Task[] = [];
  /** Previous modes whose flows drain. */
  const draining = new Map<Dataplane, Promise<void>>();
  let dataplane = options.dataplane;
  let state: LoopState = INITIAL_STATE;
  let lastWorkAt = clock.now();
  let failure: string | null = null;
  /** Views of the table: valid until the next commit. */
  let map: ServiceMap | null = null;
  let version = '';
  /** The rejected frontends, with their reported errors. */
  let refused: ReadonlyMap<FrontendKey, Error> = new Map();

  const queue = createWorkQueue({
    process: (key) => WORK[key as Work](),
    // Calls of a dataplane never overlap.
    concurrency: 1,
    clock,
    // The state machine schedules retries: the queue never sees a rejection.
    random: () => 1,
    signal: closing.signal,
  });
  const later = (work: Work, ms: number) => (ms > 0 ? queue.addAfter(work, ms) : queue.add(work));
  const send = (event: LoopEvent) => {
    const next = step(state, event, clock.now(), minSyncPeriodMs);
    state = next.state;
    if (next.action.programAfter !== undefined) later('program', next.action.programAfter);
    if (next.action.retryAfter !== undefined) later('retry', next.action.retryAfter);
  };
  const afterWork = () => {
    lastWorkAt = clock.now();
    queue.addAfter('verify-when-idle', syncPeriodMs);
  };

  const WORK: Readonly<Record<Work, () => Promise<void>>> = {
    program: () => guarded(program),
    async retry() {
      send({ kind: 'retry' });
    },
    verify: () => guarded(repair),
    async 'verify-when-idle'() {
      const left = lastWorkAt + syncPeriodMs - clock.now();
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

  /** Runs work after whose failure a full sync is needed. */
  async function guarded(work: () => Promise<void>): Promise<void> {
    if (state.phase === 'failed') return;
    try {
      await work();
    } catch (error) {
      fail(error);
    }
    afterWork();
  }
  function fail(error: unknown): void {
    const whole = state.phase === 'unsynced';
    send({ kind: 'failed' });
    options.onFailed?.(whole);
    const retryMs = (state.retryAt ?? 0) - clock.now();
    failure = messageOf(error);
    logger.error({ err: error, retryMs }, `programming failed: ${failure}`);
  }
  async function program(): Promise<void> {
    const commit = takeCommit();
    if (commit.findings.added.length > 0) options.onFindings?.(commit.findings.added);
    const whole = state.phase === 'unsynced';
    const started = clock.now();
    const report = whole
      ? await dataplane.sync(commit.map)
      : await dataplane.apply(commit.change, commit.map);
    settle(commit, report, whole, started);
  }
  function takeCommit(): Commit {
    const commit = table.commit();
    map = commit.map;
    version = options.version?.() ?? '';
    return commit;
  }
  function settle({ change, map }: Commit, report: ApplyReport, whole: boolean, started: number): void {
    failure = null;
    reportRefused(report, whole, map);
    // A retry does not help if the mode does not support the frontend.
    const isRetryWorthwhile = report.failed.some(({ error }) => !hasCode(error, 'unsupported'));
    if (isRetryWorthwhile && whole) options.onFailed?.(true);
    send({ kind: 'programmed', whole, refused: isRetryWorthwhile, dirty: table.dirty });
    first.resolve();
    const seconds = (clock.now() - started) / 1000;
    options.onApplied?.({ change, map, version, whole, report, seconds });
  }
  function reportRefused({ failed }: ApplyReport, whole: boolean, map: ServiceMap): void {
    const fresh = failed.filter(({ key, error }) => refused.get(key)?.message !== error.message);
    const current = failed.map(({ key, error }) => [key, error] as const);
    // After a change, earlier rejections stay until the next full sync.
    const kept = whole ? [] : [...refused].filter(([key]) => map.frontends.has(key));
    refused = new Map([...kept, ...current]);
    for (const { key, error } of fresh) {
      const owner = map.frontends.get(key)?.owner;
      const service = owner && `${owner.namespace}/${owner.name}`;
      logger.error({ service, frontend: key, err: error }, `not programmed: ${error.message}`);
    }
    if (fresh.length > 0) options.onRefused?.(fresh, map);
  }
  async function repair(): Promise<void> {
    if (!map) return;
    const drifts = await dataplane.verify();
    if (drifts.length === 0) return;
    const fields = { count: drifts.length, first: drifts[0] };
    logger.warn(fields, 'the kernel differs from the programmed state: repairing');
    options.onDrift?.(drifts);
    send({ kind: 'invalidated' });
    await program();
  }
  async function replaceDataplane(next: Dataplane): Promise<void> {
    const previous = dataplane;
    const commit = takeCommit();
    const started = clock.now();
    // If the switch fails, the previous mode lacks this commit.
    send({ kind: 'invalidated' });
    const report = await next.sync(commit.map);
    try {
      await previous.remove({ succeeded: true });
    } catch (error) {
      // Part of the previous mode may have been removed: it is restored before the caller removes the other mode.
      await guarded(program);
      throw error;
    }
    dataplane = next;
    drain(previous);
    settle(commit, report, true, started);
  }
  function drain(previous: Dataplane): void {
    const closed = previous
      .close()
      .catch((error: unknown) => {
        logger.warn({ mode: previous.mode }, `failed to close the previous mode: ${messageOf(error)}`);
      })
      .then(() => {
        draining.delete(previous);
        if (draining.size === 0 && !closing.signal.aborted) options.onDrained?.();
      });
    draining.set(previous, closed);
  }
  /** Runs a task between two other calls of the dataplane. */
  function exclusively<T>(run: () => Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    if (closing.signal.aborted) reject(closing.signal.reason);
    else {
      tasks.push({ run: () => run().then(resolve, reject), abandon: reject });
      queue.add('task');
    }
    return promise;
  }

  return {
    notify(how) {
      if (!closing.signal.aborted) send({ kind: 'changed', urgent: how?.urgent === true });
    },
    check: () => queue.add('verify'),
    drifts: () => exclusively(() => dataplane.verify()),
    switchTo: (next) => exclusively(() => replaceDataplane(next)),
    isListener: (at) =>
      [dataplane, ...draining.keys()].some((mode) => mode.abilities.listeners?.has(at) ?? false),
    programmed: first.promise,
    get dataplane() {
      return dataplane;
    },
    get map() {
      return map;
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
      closing.abort(new FairleadError('the proxy is closed', { op: 'proxy', code: 'ended' }));
      for (const { abandon } of tasks.splice(0)) abandon(closing.signal.reason);
      await queue.idle();
      await Promise.all(draining.values());
      await dataplane.close();
    },
  };
}
