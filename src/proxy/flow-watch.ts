import { watchTrackedFlows } from '../dataplane/conntrack/flow-events.ts';
import type { Dataplane } from '../dataplane/dataplane.ts';
import type { FlowEvent, OnFlowEvent } from '../dataplane/flow-event.ts';
import type { Logger } from '../lib/log.ts';

export interface FlowWatchOptions {
  readonly dataplane: () => Dataplane;
  readonly logger: Logger;
  /** Nanoseconds of the monotonic clock. */
  readonly monotonic: () => bigint;
}

/** What happens to flows through Services on this node, in whatever mode; costs nothing without watchers. */
export interface FlowWatch {
  watch(onEvent: OnFlowEvent): { close(): void };
  /** The node has another mode now. */
  modeChanged(): void;
  close(): void;
}

export function createFlowWatch({ dataplane, logger, monotonic }: FlowWatchOptions): FlowWatch {
  const watchers = new Set<OnFlowEvent>();
  let sources: { close(): void }[] = [];

  const onEvent = (event: FlowEvent) => {
    for (const watcher of watchers) watcher(event);
  };
  const open = () => {
    const mode = dataplane();
    const own = mode.watchFlows?.(onEvent);
    if (own) sources.push(own);
    // Connection tracking knows the userspace mode's listeners only, not which endpoints these chose.
    if (mode.mode === 'userspace') return;
    sources.push(
      watchTrackedFlows({
        monotonic,
        onEvent,
        onOverrun: () => logger.warn({}, 'events of connection tracking were lost'),
      }),
    );
  };
  const close = () => {
    for (const source of sources) source.close();
    sources = [];
  };

  return {
    watch(onFlow) {
      // As a function of its own: the same may watch twice.
      const watcher: OnFlowEvent = (event) => onFlow(event);
      watchers.add(watcher);
      if (watchers.size === 1) open();
      return {
        close() {
          if (watchers.delete(watcher) && watchers.size === 0) close();
        },
      };
    },
    modeChanged() {
      if (watchers.size === 0) return;
      close();
      open();
    },
    close() {
      watchers.clear();
      close();
    },
  };
}
