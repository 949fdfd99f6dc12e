/** Attempts to connect that have no answer yet, the oldest first; bounded. */
export interface AttemptTable {
  readonly size: number;
  /** Attempts that were not taken in because there were too many. */
  readonly left: number;
  begin(id: number, event: Uint8Array, now: number): void;
  /** Takes one out; null when it is not there. */
  take(id: number): Uint8Array | null;
  /** Takes out those that began at `time` or before. */
  takeUntil(time: number): Uint8Array[];
  /** When the oldest began; null when there is none. */
  readonly oldest: number | null;
  clear(): void;
}

/** `most`: each takes about 400 bytes. */
export function createAttemptTable(most: number): AttemptTable {
  const attempts = new Map<number, { readonly event: Uint8Array; readonly at: number }>();
  let left = 0;
  return {
    get size() {
      return attempts.size;
    },
    get left() {
      return left;
    },
    begin(id, event, now) {
      if (attempts.size >= most && !attempts.has(id)) {
        left++;
        return;
      }
      // A number that comes again is another flow's: it goes to the end.
      attempts.delete(id);
      attempts.set(id, { event, at: now });
    },
    take(id) {
      const event = attempts.get(id)?.event ?? null;
      if (event) attempts.delete(id);
      return event;
    },
    takeUntil(time) {
      const events: Uint8Array[] = [];
      for (const [id, { event, at }] of attempts) {
        if (at > time) break;
        attempts.delete(id);
        events.push(event);
      }
      return events;
    },
    get oldest() {
      for (const { at } of attempts.values()) return at;
      return null;
    },
    clear: () => attempts.clear(),
  };
}
