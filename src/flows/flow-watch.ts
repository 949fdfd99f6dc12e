import type { Dataplane } from '../dataplane/dataplane.ts';
import type { FlowEvent } from '../dataplane/flow-event.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { type DeviceWatch, watchDevices } from './device-watch.ts';
import type { FlowsEntry } from './flow-line.ts';
import { createFlowMerge } from './flow-merge.ts';
import { watchForgers } from './forger-watch.ts';
import { type ReasonTables, whyUnanswered } from './reason.ts';
import { watchTrackedFlows } from './tracked-flows.ts';

export interface FlowWatchOptions {
  readonly dataplane: () => Dataplane;
  readonly logger: Logger;
  readonly clock: Clock;
  /** Nanoseconds of the monotonic clock. */
  readonly monotonic: () => bigint;
  readonly sleep: (ms: number) => Promise<void>;
  /** Domain of the cluster. */
  readonly domain: string;
  readonly tables: () => ReasonTables;
  /** Returns the name for which the pod with an address got another address; null: none is known. */
  readonly nameFor?: (client: string, address: string) => string | null;
}

/** The flows of this node, in any mode; free without watchers. */
export interface FlowWatch {
  /** `ready` resolves when all sources are open, or have said why they are not. */
  watch(onEntry: (entry: FlowsEntry) => void): { readonly ready: Promise<void>; close(): void };
  /** The latest entries, with the time (ms since 1970) since when they were recorded; null: there was no watcher. */
  recorded(): { readonly since: number | null; readonly entries: readonly FlowsEntry[] };
  /** Switches to the node's new mode. */
  modeChanged(): void;
  close(): void;
}

/** How many of the latest entries are kept for later readers. */
const MAX_RECORDED = 8192;
/** How long what the packets show waits for what the mode says of the same connection. */
const HOLD_MS = 400;

export function createFlowWatch(options: FlowWatchOptions): FlowWatch {
  const named = (entry: FlowsEntry): FlowsEntry => {
    if (entry.type !== 'flow' || !entry.endpoint || entry.service) return entry;
    const asked = options.nameFor?.(entry.client.ip, entry.endpoint.ip) ?? null;
    return asked === null ? entry : { ...entry, asked };
  };
  const { dataplane, logger, clock, monotonic, sleep, domain, tables } = options;
  const watchers = new Set<(entry: FlowsEntry) => void>();
  let modeSources: { close(): void }[] = [];
  let devices: DeviceWatch | null = null;
  let forgers: { close(): void } | null = null;
  let entries: FlowsEntry[] = [];
  let since: number | null = null;
  let closedAt: number | null = null;

  const emit = (shown: FlowsEntry) => {
    const entry = named(shown);
    entries.push(entry);
    if (entries.length >= 2 * MAX_RECORDED) {
      entries = entries.slice(-MAX_RECORDED);
      const [oldest] = entries;
      if (oldest && oldest.type !== 'notice') since = Date.parse(oldest.time);
    }
    for (const watcher of watchers) watcher(entry);
  };
  const notice = (text: string) => emit({ type: 'notice', text });
  const merge = createFlowMerge({ tables, now: clock.now, monotonic, emit });

  const openMode = () => {
    const mode = dataplane();
    const onEvent = (event: FlowEvent) => merge.event(event);
    const { flows } = mode.abilities;
    if (flows) modeSources.push(flows.watch(onEvent));
    if (flows?.isComplete) return;
    modeSources.push(
      watchTrackedFlows({
        monotonic,
        onEvent,
        onSample: (share) =>
          notice(
            share === 1
              ? 'all connections through Services are shown again'
              : `too many connections: from now on 1 in ${share} of those through Services is shown`,
          ),
        onOverrun() {
          logger.warn({}, 'connection tracking events were lost');
          notice('some connections through Services are not shown: the kernel dropped their events');
        },
      }),
    );
  };
  const closeMode = () => {
    for (const source of modeSources) source.close();
    modeSources = [];
  };
  const open = () => {
    if (closedAt !== null) {
      const [from, to] = [closedAt, clock.now()].map((ms) => new Date(ms).toISOString());
      // For readers of the record only.
      entries.push({ type: 'notice', text: `flows were not recorded from ${from} to ${to}` });
    }
    since ??= clock.now();
    openMode();
    forgers = watchForgers({ clock, logger, onNotice: notice });
    devices = watchDevices({
      domain,
      sleep,
      onNotice: notice,
      onLookup: merge.lookup,
      onStall: merge.stall,
      whyUnanswered: (client, server) => whyUnanswered(client, server, tables()),
      onConnection: (seen) => void clock.after(HOLD_MS, () => merge.connection(seen)),
    });
  };
  const close = () => {
    closedAt = clock.now();
    closeMode();
    devices?.close();
    devices = null;
    forgers?.close();
    forgers = null;
  };

  return {
    watch(onEntry) {
      // Wrapped in a new function: the same callback may subscribe twice.
      const watcher = (entry: FlowsEntry) => onEntry(entry);
      watchers.add(watcher);
      if (watchers.size === 1) open();
      return {
        ready: devices?.ready ?? Promise.resolve(),
        close() {
          if (watchers.delete(watcher) && watchers.size === 0) close();
        },
      };
    },
    recorded: () => ({ since, entries }),
    modeChanged() {
      if (watchers.size === 0) return;
      closeMode();
      openMode();
    },
    close() {
      watchers.clear();
      close();
    },
  };
}
