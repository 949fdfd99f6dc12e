import { type FlowSource, readFlows } from '../cluster/flow-reader.ts';
import type { FlowsEntry } from '../flows/flow-line.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { EdgeCounter } from './edge-counter.ts';

/** The flows of all nodes, read while someone looks. */
export interface FlowFeed {
  /** Starts to read; the result of the last call that is still open ends it. */
  open(): { close(): void };
}

/** After an agent ended, it is asked again; agents restart within a second. */
const RETRY_MS = 1000;

/** The subject of a notice; a later notice of the same node and subject replaces it. */
export type NoticeSubject = 'reading' | 'services' | 'packets';

/**
 * `cluster`: read again before each attempt, since nodes are added and removed. `onNotice`: what is wrong with a node, or what
 * it leaves out, in words; null: nothing.
 */
export function createFlowFeed(options: {
  readonly cluster: () => Promise<FlowSource>;
  readonly counter: EdgeCounter;
  readonly clock: Clock;
  readonly onNotice: (node: string, subject: NoticeSubject, notice: string | null) => void;
}): FlowFeed {
  const { cluster, counter, clock, onNotice } = options;
  let readers = 0;
  let end: AbortController | null = null;

  async function followNode(source: FlowSource, node: string, signal: AbortSignal): Promise<void> {
    const onEntry = (entry: FlowsEntry) => {
      if (entry.type === 'notice') onNotice(node, subjectOf(entry.text), sampling(entry.text));
      else counter.add(entry, node);
    };
    const reader = readFlows(source, node, onEntry, signal);
    try {
      await reader.started;
      onNotice(node, 'reading', null);
      await reader.ended;
    } catch (error) {
      if (!signal.aborted) onNotice(node, 'reading', messageOf(error));
    }
  }

  async function follow(signal: AbortSignal): Promise<void> {
    const following = new Set<string>();
    while (!signal.aborted) {
      try {
        const source = await cluster();
        const names = source.report.state.nodes.map(({ name }) => name);
        for (const node of names.filter((name) => !following.has(name))) {
          following.add(node);
          followNode(source, node, signal).finally(() => following.delete(node));
        }
        onNotice('', 'reading', null);
      } catch (error) {
        onNotice('', 'reading', messageOf(error));
      }
      await pause(clock, RETRY_MS, signal);
    }
  }

  return {
    open() {
      if (readers++ === 0) {
        end = new AbortController();
        void follow(end.signal);
      }
      let isOpen = true;
      return {
        close() {
          if (!isOpen) return;
          isOpen = false;
          if (--readers === 0) end?.abort();
        },
      };
    },
  };
}

/** The sampling of flows through Services and that of packets begin and end independently. */
const subjectOf = (notice: string): NoticeSubject =>
  /through Services/.test(notice) ? 'services' : 'packets';

/** Null: the sampling has ended. */
const sampling = (notice: string): string | null => (/shown again$/.test(notice) ? null : notice);
