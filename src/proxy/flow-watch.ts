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

/** The events of flows through Services on this node, in any mode; free without watchers. */
export interface FlowWatch {
  watch(onEvent: OnFlowEvent): { close(): void };
  /** Switches to the node's new mode. */
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
    // Connection tracking sees only the userspace mode's listeners, not their endpoints.
    if (mode.mode === 'userspace') return;
    sources.push(
      watchTrackedFlows({
        monotonic,
        onEvent,
        onOverrun: () => logger.warn({}, 'connection tracking events were lost'),
      }),
    );
  };
  const close = () => {
    for (const source of sources) source.close();
    sources = [];
  };

  return {
    watch(onFlow) {
      // Wrapped in a new function: the same callback may subscribe twice.
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
