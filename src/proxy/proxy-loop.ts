import type { ApplyReport, Dataplane, Drift } from '../dataplane/dataplane.ts';
import type { SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createReconcileLoop, type Programmed, type TaskControl } from '../lib/reconcile-loop.ts';
import type { Change, Finding, FrontendKey, ServiceMap } from '../service/model.ts';
import type { Commit, ServiceTable } from '../service/service-table.ts';

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

/** Starts the loop; the first `notify` starts the first update. */
export function startProxy(options: ProxyOptions): ServiceProxy {
  const { table, clock, logger, minSyncPeriodMs, syncPeriodMs } = options;
  const first = Promise.withResolvers<void>();
  /** Previous modes whose flows drain. */
  const draining = new Map<Dataplane, Promise<void>>();
  let dataplane = options.dataplane;
  let isClosed = false;
  /** Views of the table: valid until the next commit. */
  let map: ServiceMap | null = null;
  let version = '';
  /** The rejected frontends, with their reported errors. */
  let refused: ReadonlyMap<FrontendKey, Error> = new Map();

  const loop = createReconcileLoop('proxy', {
    program,
    verify,
    verifyPeriodMs: syncPeriodMs,
    minPeriodMs: minSyncPeriodMs,
    clock,
    onFailed(error, { whole, retryMs }) {
      options.onFailed?.(whole);
      logger.error({ err: error, retryMs }, `programming failed: ${messageOf(error)}`);
    },
  });

  async function program(whole: boolean): Promise<Programmed> {
    const commit = takeCommit();
    if (commit.findings.added.length > 0) options.onFindings?.(commit.findings.added);
    const started = clock.now();
    const report = whole
      ? await dataplane.sync(commit.map)
      : await dataplane.apply(commit.change, commit.map);
    return settle(commit, report, whole, started);
  }
  function takeCommit(): Commit {
    const commit = table.commit();
    map = commit.map;
    version = options.version?.() ?? '';
    return commit;
  }
  function settle({ change, map }: Commit, report: ApplyReport, whole: boolean, started: number): Programmed {
    reportRefused(report, whole, map);
    // A retry does not help if the mode does not support the frontend.
    const isRetryWorthwhile = report.failed.some(({ error }) => !hasCode(error, 'unsupported'));
    if (isRetryWorthwhile && whole) options.onFailed?.(true);
    first.resolve();
    const seconds = (clock.now() - started) / 1000;
    options.onApplied?.({ change, map, version, whole, report, seconds });
    return { refused: isRetryWorthwhile, dirty: table.dirty };
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
  async function verify(): Promise<boolean> {
    const drifts = await dataplane.verify();
    if (drifts.length === 0) return false;
    const fields = { count: drifts.length, first: drifts[0] };
    logger.warn(fields, 'the kernel differs from the programmed state: repairing');
    options.onDrift?.(drifts);
    return true;
  }
  async function replaceDataplane(next: Dataplane, control: TaskControl): Promise<void> {
    const previous = dataplane;
    const commit = takeCommit();
    const started = clock.now();
    // If the switch fails, the previous mode lacks this commit.
    control.invalidate();
    const report = await next.sync(commit.map);
    try {
      await previous.remove({ succeeded: true });
    } catch (error) {
      // Part of the previous mode may have been removed: it is restored before the caller removes the other mode.
      await control.program();
      throw error;
    }
    dataplane = next;
    drain(previous);
    control.programmed(settle(commit, report, true, started));
  }
  function drain(previous: Dataplane): void {
    const closed = previous
      .close()
      .catch((error: unknown) => {
        logger.warn({ mode: previous.mode }, `failed to close the previous mode: ${messageOf(error)}`);
      })
      .then(() => {
        draining.delete(previous);
        if (draining.size === 0 && !isClosed) options.onDrained?.();
      });
    draining.set(previous, closed);
  }

  return {
    notify: loop.changed,
    check: loop.check,
    drifts: () => loop.exclusively(() => dataplane.verify()),
    switchTo: (next) => loop.exclusively((control) => replaceDataplane(next, control)),
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
      return loop.lastAppliedAt;
    },
    get pendingSince() {
      return loop.pendingSince;
    },
    get failure() {
      return loop.failure;
    },
    async close() {
      isClosed = true;
      await loop.close();
      await Promise.all(draining.values());
      await dataplane.close();
    },
  };
}
