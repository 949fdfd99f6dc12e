import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';

/** How often the connections to removed endpoints are checked. */
const POLL_MS = 2000;

/** Returns true for real servers whose endpoints no longer exist. */
export type GoneTest = (real: { readonly address: string; readonly port: number }) => boolean;

/** The removal of drained real servers while the mode is in use. */
export interface DrainPolls {
  /** Polls until none drains. */
  start(): void;
  /** Collects at once; real servers that are gone do not wait for their connections. */
  collect(isGone: GoneTest): Promise<void>;
  stop(): void;
}

export function createDrainPolls(
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  isDraining: () => boolean,
  collectDrained: (isGone: GoneTest) => Promise<void>,
): DrainPolls {
  let cancel: (() => void) | null = null;

  function start(): void {
    if (cancel || !isDraining()) return;
    cancel = clock.after(POLL_MS, () => {
      cancel = null;
      void collect(() => false);
    });
  }

  async function collect(isGone: GoneTest): Promise<void> {
    try {
      await collectDrained(isGone);
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'failed to remove drained servers; trying again');
    }
    start();
  }

  return {
    start,
    collect,
    stop() {
      cancel?.();
      cancel = null;
    },
  };
}
