import type { Clock } from '../lib/clock.ts';

export interface AliveWatchOptions {
  readonly clock: Clock;
  /** Called once when the other side has not reported for this many seconds. */
  readonly seconds: number;
  readonly onSilent: () => void;
}

/** Watches that another thread, which reports every second, still runs. */
export interface AliveWatch {
  /** The other side has reported. */
  report(): void;
  close(): void;
}

const TURN_MS = 1000;

/** Starts a watch. Seconds in which this thread did not run do not count: the other one did not run either. */
export function watchAlive({ clock, seconds, onSilent }: AliveWatchOptions): AliveWatch {
  let missed = 0;
  const turn = () => {
    cancel = clock.after(TURN_MS, turn);
    if (++missed === seconds) onSilent();
  };
  let cancel = clock.after(TURN_MS, turn);
  return {
    report() {
      missed = 0;
    },
    close: () => cancel(),
  };
}
