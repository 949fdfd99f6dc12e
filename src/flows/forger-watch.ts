import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { readForgers } from '../network/source-guard.ts';

export interface ForgerWatchOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Says in words what was dropped. */
  readonly onNotice: (text: string) => void;
}

const READ_MS = 1000;

/** Reports the packets of pods that the source guard drops: such packets belong to no flow of the pod. */
export function watchForgers({ clock, logger, onNotice }: ForgerWatchOptions): { close(): void } {
  let before: ReadonlyMap<string, number> | null = null;
  let cancel = () => {};
  const read = () => {
    try {
      const counts = readForgers();
      for (const text of before ? forgeryTexts(before, counts) : []) onNotice(text);
      before = counts;
    } catch (error) {
      logger.warn({}, `cannot read the counters of forged packets: ${messageOf(error)}`);
    }
    cancel = clock.after(READ_MS, read);
  };
  read();
  return { close: () => cancel() };
}

/** Words what was counted since; a table that was rewritten counts from zero. */
export function forgeryTexts(
  before: ReadonlyMap<string, number>,
  counts: ReadonlyMap<string, number>,
): string[] {
  return [...counts].flatMap(([pod, count]) => {
    const known = before.get(pod) ?? 0;
    const fresh = count >= known ? count - known : count;
    const packets = fresh === 1 ? 'a packet' : `${fresh} packets`;
    return fresh === 0 ? [] : [`dropped ${packets} of pod ${pod}: the source is not an address of the pod`];
  });
}
