import type { ApplyReport, Dataplane, Drift, SocketAddress } from '../dataplane/dataplane.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { Change, Finding, FrontendKey, ServiceMap } from '../service/model.ts';
import type { Commit, ServiceTable } from '../service/service-table.ts';

export interface ProxyOptions {
  readonly table: ServiceTable;
  readonly dataplane: Dataplane;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Least time between two programmings. */
  readonly minSyncPeriodMs: number;
  /** After this long the kernel is compared with what it should be. */
  readonly syncPeriodMs: number;
  /** Called after the kernel has it, with what was programmed; `whole`: everything, not only the change. */
  readonly onApplied?: (applied: Applied) => void;
  /** A programming failed, or everything was programmed and some of it refused. */
  readonly onFailed?: () => void;
  /** Frontends that are refused, when they are refused first or for another reason than before. */
  readonly onRefused?: (refused: ApplyReport['failed'], map: ServiceMap) => void;
  readonly onFindings?: (added: readonly Finding[]) => void;
  readonly onDrift?: (drifts: readonly Drift[]) => void;
  /** After a switch: nothing is on its way through the mode of before any more. */
  readonly onLeft?: () => void;
}

export interface Applied {
  readonly change: Change;
  readonly map: ServiceMap;
  readonly whole: boolean;
  readonly report: ApplyReport;
  readonly seconds: number;
}

/** Keeps the kernel equal to the table: one programming at a time, all changes since the last together. */
export interface ServiceProxy {
  /** Something in the table may have changed; `urgent`: it does not wait for the least time between programmings. */
  notify(options?: { readonly urgent: boolean }): void;
  /** The kernel may have been changed by others: compare, and repair. */
  check(): void;
  /** Compares the kernel with what was programmed, and repairs nothing. */
  drifts(): Promise<readonly Drift[]>;
  /** Programs another mode, then removes the current one: new connections always find one of the two. */
  switchTo(next: Dataplane): Promise<void>;
  /** `Dataplane.listening` of the mode, and of those of before that still end what is on its way through them. */
  listening(at: SocketAddress): boolean;
  /** Resolves after the first programming: the kernel has all Services that it does not refuse. */
  readonly programmed: Promise<void>;
  readonly dataplane: Dataplane;
  /** When the last programming was complete, in the clock's milliseconds; null before the first. */
  readonly lastAppliedAt: number | null;
  /** The last map that was programmed: valid until the next programming. */
  readonly map: ServiceMap | null;
  /** Since when a change waits to be programmed; null when none does. */
  readonly pendingSince: number | null;
  /** Ends the loop and releases the dataplane; what is programmed stays. */
  close(): Promise<void>;
}

const FIRST_RETRY_MS = 100;
const MOST_RETRY_MS = 30_000;

export function startProxy(options: ProxyOptions): ServiceProxy {
  const { table, clock, logger } = options;
  let dataplane = options.dataplane;
  let synced = false;
  let closed = false;
  let wanted = false;
  let urgent = false;
  let checkWanted = false;
  let lastAppliedAt: number | null = null;
  let pendingSince: number | null = null;
  let retryMs = FIRST_RETRY_MS;
  /** After a failure: changes that come meanwhile wait for the next try, or a busy cluster would know no back-off. */
  let backingOff = false;
  /** Frontends that the kernel has not got, and why. */
  let refused: ReadonlyMap<FrontendKey, Error> = new Map();
  /** Set while everything waits to be programmed anew for the sake of what was refused. */
  let cancelRetry: (() => void) | null = null;
  let running: Promise<void> | null = null;
  /** Modes of before that still end what is on its way through them. */
  const leaving = new Map<Dataplane, Promise<void>>();
  let cancelTimer = () => {};
  let cancelCheck = () => {};
  const first = Promise.withResolvers<void>();
  // The last map, for programming everything anew; live views of the table, so only between commits.
  let map: ServiceMap | null = null;

  const program = async (): Promise<void> => {
    urgent = false;
    const commit = table.commit();
    map = commit.map;
    if (commit.findings.added.length > 0) options.onFindings?.(commit.findings.added);
    const whole = !synced;
    const started = clock.now();
    const report = synced
      ? await dataplane.apply(commit.change, commit.map)
      : await dataplane.sync(commit.map);
    settle(commit, report, whole, started);
  };
  /** The kernel has all that it does not refuse; for the rest everything is programmed anew from time to time. */
  const settle = ({ change, map }: Commit, report: ApplyReport, whole: boolean, started: number) => {
    synced = true;
    backingOff = false;
    lastAppliedAt = clock.now();
    pendingSince = table.dirty ? clock.now() : null;
    const before = refused;
    refused = new Map(report.failed.map(({ key, error }) => [key, error]));
    const news = report.failed.filter(({ key, error }) => before.get(key)?.message !== error.message);
    for (const { key, error } of news) {
      const owner = map.frontends.get(key)?.owner;
      const service = owner && `${owner.namespace}/${owner.name}`;
      logger.error({ service, frontend: key, err: error }, `not programmed: ${error.message}`);
    }
    if (news.length > 0) options.onRefused?.(news, map);
    // What a mode cannot carry at all, it can carry no better the next time.
    const isComplete = report.failed.every(({ error }) => hasCode(error, 'unsupported'));
    if (!isComplete) retryWhole(whole);
    else if (whole) {
      cancelRetry?.();
      cancelRetry = null;
    }
    if (cancelRetry === null) retryMs = FIRST_RETRY_MS;
    first.resolve();
    const seconds = (clock.now() - started) / 1000;
    options.onApplied?.({ change, map, whole, report, seconds });
  };
  /** `again`: everything was programmed just now, and some of it refused. */
  const retryWhole = (again: boolean) => {
    if (again) options.onFailed?.();
    else if (cancelRetry) return;
    cancelRetry?.();
    cancelRetry = clock.after(retryMs, () => {
      cancelRetry = null;
      synced = false;
      wanted = true;
      start();
    });
    retryMs = Math.min(retryMs * 2, MOST_RETRY_MS);
  };
  const compare = async (): Promise<void> => {
    const drifts = await dataplane.verify();
    if (drifts.length === 0) return;
    logger.warn(
      { count: drifts.length, first: drifts[0] },
      'the kernel differs from what was programmed; repairing',
    );
    options.onDrift?.(drifts);
    synced = false;
    await program();
  };
  const run = async (): Promise<void> => {
    while ((wanted || checkWanted) && !closed) {
      try {
        if (wanted) {
          wanted = false;
          await program();
        } else {
          checkWanted = false;
          if (map) await compare();
        }
      } catch (error) {
        synced = false;
        options.onFailed?.();
        logger.error({ err: error, retryMs }, `programming failed: ${messageOf(error)}`);
        later(retryMs);
        backingOff = true;
        retryMs = Math.min(retryMs * 2, MOST_RETRY_MS);
        return;
      }
    }
    scheduleCheck();
  };
  const start = () => {
    if (closed || running) return;
    running = run().finally(() => {
      running = null;
    });
  };
  const later = (ms: number) => {
    cancelTimer();
    cancelTimer = clock.after(ms, () => {
      backingOff = false;
      wanted = true;
      start();
    });
  };
  const scheduleCheck = () => {
    cancelCheck();
    cancelCheck = clock.after(options.syncPeriodMs, () => {
      checkWanted = true;
      start();
    });
  };

  return {
    notify(how) {
      if (closed) return;
      pendingSince ??= clock.now();
      urgent ||= how?.urgent === true;
      const wait =
        lastAppliedAt === null || urgent ? 0 : lastAppliedAt + options.minSyncPeriodMs - clock.now();
      // Not at once: the events of one burst come in one turn of the event loop, and go in one programming.
      if (!backingOff) later(Math.max(0, wait));
    },
    check() {
      checkWanted = true;
      start();
    },
    async drifts() {
      while (running) await running;
      const work = dataplane.verify();
      running = work
        .then(() => {})
        .finally(() => {
          running = null;
          // What was asked for meanwhile found this work under way.
          if (wanted || checkWanted) start();
        });
      running.catch(() => {});
      return await work;
    },
    async switchTo(next) {
      while (running) await running;
      const before = dataplane;
      const work = async () => {
        const commit = table.commit();
        map = commit.map;
        const started = clock.now();
        // Should the switch fail, the mode of before has not had this change.
        synced = false;
        const report = await next.sync(commit.map);
        dataplane = next;
        await before.remove({ succeeded: true });
        const closing = before.close().catch((error: unknown) => {
          logger.warn(
            { mode: before.mode, error: messageOf(error) },
            'the mode of before could not be closed',
          );
        });
        leaving.set(before, closing);
        void closing.then(() => {
          leaving.delete(before);
          if (leaving.size === 0 && !closed) options.onLeft?.();
        });
        settle(commit, report, true, started);
      };
      running = work().finally(() => {
        running = null;
        if (wanted || checkWanted) start();
      });
      await running;
    },
    listening: (at) => [dataplane, ...leaving.keys()].some((mode) => mode.listening?.(at) ?? false),
    programmed: first.promise,
    get dataplane() {
      return dataplane;
    },
    get map() {
      return map;
    },
    get lastAppliedAt() {
      return lastAppliedAt;
    },
    get pendingSince() {
      return pendingSince;
    },
    async close() {
      closed = true;
      cancelTimer();
      cancelRetry?.();
      cancelCheck();
      await running;
      await Promise.all(leaving.values());
      await dataplane.close();
    },
  };
}
