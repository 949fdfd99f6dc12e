import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { readHeldPods } from '../network/connection-bound.ts';
import { readForgers } from '../network/source-guard.ts';

export interface ForgerWatchOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Says in words what was dropped. */
  readonly onNotice: (text: string) => void;
}

const READ_MS = 1000;

/**
 * Reports the packets of pods that the source guard drops, and those of pods with too many connections: such packets belong to
 * no flow of the pod.
 */
export function watchForgers({ clock, logger, onNotice }: ForgerWatchOptions): { close(): void } {
  let before: { readonly forged: Counts; readonly held: Counts } | null = null;
  let cancel = () => {};
  const read = () => {
    try {
      const now = { forged: readForgers(), held: readHeldPods() };
      if (before) {
        const forged = droppedTexts(before.forged, now.forged, FORGED);
        for (const text of [...forged, ...droppedTexts(before.held, now.held, HELD)]) onNotice(text);
      }
      before = now;
    } catch (error) {
      logger.warn({}, `cannot read the counters of dropped packets: ${messageOf(error)}`);
    }
    cancel = clock.after(READ_MS, read);
  };
  read();
  return { close: () => cancel() };
}

type Counts = ReadonlyMap<string, number>;

/** The reasons for which packets of pods are dropped. */
export const FORGED = 'the source is not an address of the pod';
export const HELD =
  'the pod has more tracked connections than its share of the node, and opens no more (network.maxConnectionsPerPod)';

/** Words what was counted since; a table that was rewritten counts from zero. */
export function droppedTexts(before: Counts, counts: Counts, reason: string): string[] {
  return [...counts].flatMap(([pod, count]) => {
    const known = before.get(pod) ?? 0;
    const fresh = count >= known ? count - known : count;
    const packets = fresh === 1 ? 'a packet' : `${fresh} packets`;
    return fresh === 0 ? [] : [`dropped ${packets} of pod ${pod}: ${reason}`];
  });
}
