/** How often the rate is compared with the limits; a busy process does it later. */
export const SAMPLING_MS = 500;
/** The highest number of packets or events in that time. */
const MAX_COUNT = 4000;
/** 1 in so many at least. */
export const MAX_SAMPLE = 1024;

/**
 * Returns the next share of packets or events to read (1 in N, a power of two), after so many were read with the present
 * share within some milliseconds. It rises only when the double would still be far below the limit, so that it does not change back and forth.
 */
export function nextSample(sample: number, read: number, elapsedMs: number): number {
  const count = (read * SAMPLING_MS) / Math.max(SAMPLING_MS, elapsedMs);
  if (count > MAX_COUNT) {
    const times = 2 ** Math.ceil(Math.log2(count / MAX_COUNT));
    return Math.min(MAX_SAMPLE, sample * times);
  }
  return count * 4 < MAX_COUNT ? Math.max(1, sample / 2) : sample;
}
