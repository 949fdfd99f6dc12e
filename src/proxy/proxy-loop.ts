import type { ApplyReport, Dataplane, Drift } from '../dataplane/dataplane.ts';
import type { SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createReconcileLoop, type Programmed, type TaskControl } from '../lib/reconcile-loop.ts';
import type { FrontendKey, ServiceMap } from '../service/model.ts';
import type { Commit, ServiceTable } from '../service/service-table.ts';
import type { ProxyStream } from './proxy-stream.ts';

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
  /** Gets the events `applied`, `failed`, `refused`, `findings`, `drift` and `drained`. */
  readonly stream: ProxyStream;
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
  const { table, clock, logger, minSyncPeriodMs, syncPeriodMs, stream } = options;
  const first = Promise.withResolvers<void>();
  const draining = createDrainingModes(stream, logger);
  const refused = createRefusedFrontends(stream, logger);
  let dataplane = options.dataplane;
  /** Views of the table: valid until the next commit. */
  let map: ServiceMap | null = null;
  let version = '';

  const loop = createReconcileLoop('proxy', {
    program,
    verify: () => reportDrift(dataplane, stream, logger),
    verifyPeriodMs: syncPeriodMs,
    minPeriodMs: minSyncPeriodMs,
    clock,
    onFailed(error, { whole, retryMs }) {
      stream.emit({ kind: 'failed', whole });
      logger.error({ err: error, retryMs }, `programming failed: ${messageOf(error)}`);
    },
  });

  async function program(whole: boolean): Promise<Programmed> {
    const commit = takeCommit();
    const { added } = commit.findings;
    if (added.length > 0) stream.emit({ kind: 'findings', added });
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
    refused.report(report, whole, map);
    // A retry does not help if the mode does not support the frontend.
    const isRetryWorthwhile = report.failed.some(({ error }) => !hasCode(error, 'unsupported'));
    if (isRetryWorthwhile && whole) stream.emit({ kind: 'failed', whole });
    first.resolve();
    const seconds = (clock.now() - started) / 1000;
    stream.emit({ kind: 'applied', change, map, version, whole, report, seconds });
    return { refused: isRetryWorthwhile, dirty: table.dirty };
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
    draining.add(previous);
    control.programmed(settle(commit, report, true, started));
  }

  return {
    notify: loop.changed,
    check: loop.check,
    drifts: () => loop.exclusively(() => dataplane.verify()),
    switchTo: (next) => loop.exclusively((control) => replaceDataplane(next, control)),
    isListener: (at) =>
      [dataplane, ...draining.modes()].some((mode) => mode.abilities.listeners?.has(at) ?? false),
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
      draining.mute();
      await loop.close();
      await draining.closed();
      await dataplane.close();
    },
  };
}

/** Compares the kernel with the programmed state, and reports differences. Returns whether there are any. */
async function reportDrift(dataplane: Dataplane, stream: ProxyStream, logger: Logger): Promise<boolean> {
  const drifts = await dataplane.verify();
  if (drifts.length === 0) return false;
  const fields = { count: drifts.length, first: drifts[0] };
  logger.warn(fields, 'the kernel differs from the programmed state: repairing');
  stream.emit({ kind: 'drift', drifts });
  return true;
}

/** Remembers rejected frontends, so that each rejection is reported once. */
function createRefusedFrontends(stream: ProxyStream, logger: Logger) {
  /** With their reported errors. */
  let refused: ReadonlyMap<FrontendKey, Error> = new Map();
  return {
    report({ failed }: ApplyReport, whole: boolean, map: ServiceMap): void {
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
      if (fresh.length > 0) stream.emit({ kind: 'refused', refused: fresh, map });
    },
  };
}

/** Closes previous modes, which can take until their flows have ended. */
function createDrainingModes(stream: ProxyStream, logger: Logger) {
  const draining = new Map<Dataplane, Promise<void>>();
  let isMuted = false;
  return {
    add(previous: Dataplane): void {
      const closed = previous
        .close()
        .catch((error: unknown) => {
          logger.warn({ mode: previous.mode }, `failed to close the previous mode: ${messageOf(error)}`);
        })
        .then(() => {
          draining.delete(previous);
          if (draining.size === 0 && !isMuted) stream.emit({ kind: 'drained' });
        });
      draining.set(previous, closed);
    },
    modes: () => draining.keys(),
    /** Ends the events. */
    mute(): void {
      isMuted = true;
    },
    async closed(): Promise<void> {
      await Promise.all(draining.values());
    },
  };
}
