import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { readHeldPods } from '../network/connection-bound.ts';
import { readLimitedClients } from '../network/dns-limit.ts';
import { readForgers } from '../network/source-guard.ts';

export interface ForgerWatchOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Says in words what was dropped. */
  readonly onNotice: (text: string) => void;
}

const READ_MS = 1000;

/**
 * Reports the packets of pods that the source guard drops, those of pods with too many connections, and DNS queries above the
 * limit of a client: such packets belong to no flow of the pod.
 */
export function watchForgers({ clock, logger, onNotice }: ForgerWatchOptions): { close(): void } {
  let before: Readonly<Record<'forged' | 'held' | 'limited', Counts>> | null = null;
  let cancel = () => {};
  const read = () => {
    try {
      const now = { forged: readForgers(), held: readHeldPods(), limited: readLimitedClients().packets };
      if (before) {
        const forged = droppedTexts(before.forged, now.forged, FORGED);
        const held = droppedTexts(before.held, now.held, HELD);
        const limited = droppedTexts(before.limited, now.limited, LIMITED, '');
        for (const text of [...forged, ...held, ...limited]) onNotice(text);
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
export const LIMITED = 'it sends more DNS queries than the limit of one client';

/** Words what was counted since; a table that was rewritten counts from zero. `kind`: of the names; '' if they are addresses. */
export function droppedTexts(before: Counts, counts: Counts, reason: string, kind = 'pod '): string[] {
  return [...counts].flatMap(([name, count]) => {
    const known = before.get(name) ?? 0;
    const fresh = count >= known ? count - known : count;
    const packets = fresh === 1 ? 'a packet' : `${fresh} packets`;
    return fresh === 0 ? [] : [`dropped ${packets} of ${kind}${name}: ${reason}`];
  });
}
