import type { Clock } from '../lib/clock.ts';

/**
 * The maximum rate of events per second, at about 10 µs each: beyond it, half of the connections are sampled, then a
 * quarter, and so on. When a sampled connection to an endpoint fails, the others are listed.
 */
const MAX_EVENT_RATE = 5000;
const MAX_SAMPLING_MASK = 0xff;
const RATE_MS = 1000;

/** The share of connections whose events are read, by their rate. */
export interface EventSampling {
  /** 0: all connections; 1: every second; 3: every fourth, and so on. */
  readonly mask: number;
  /** Counts an event. */
  count(): void;
  /** Adapts the share to the rate of events since the last time. */
  adapt(): void;
}

export function createSampling({
  clock,
  changed,
}: {
  readonly clock: Clock;
  /** `isNarrower`: fewer connections are sampled than before; `rate`: events per second. */
  readonly changed: (mask: number, isNarrower: boolean, rate: number) => void;
}): EventSampling {
  let mask = 0;
  let events = 0;
  let since = clock.now();
  return {
    get mask() {
      return mask;
    },
    count() {
      events++;
    },
    adapt() {
      const ms = clock.now() - since;
      if (ms < RATE_MS) return;
      const rate = (events * 1000) / ms;
      events = 0;
      since = clock.now();
      const before = mask;
      if (rate > MAX_EVENT_RATE) mask = Math.min(mask * 2 + 1, MAX_SAMPLING_MASK);
      else if (rate < MAX_EVENT_RATE / 4) mask >>= 1;
      if (mask !== before) changed(mask, mask > before, rate);
    },
  };
}
