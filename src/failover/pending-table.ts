/** Pending connections by the id of their connection tracking entry, the oldest first; bounded. */
export interface PendingTable {
  readonly size: number;
  /** Adds a connection; ignored if the table is full. */
  begin(id: number, event: Uint8Array, now: number): void;
  /** Removes a connection and returns its event, or null. */
  take(id: number): Uint8Array | null;
  /** Removes and returns the connections that began at `time` or before. */
  takeUntil(time: number): Uint8Array[];
  /** The start of the oldest; null: the table is empty. */
  readonly oldest: number | null;
  clear(): void;
}

/** `max`: each entry takes about 400 bytes. */
export function createPendingTable(max: number): PendingTable {
  const pending = new Map<number, { readonly event: Uint8Array; readonly at: number }>();

  return {
    get size() {
      return pending.size;
    },

    begin(id, event, now) {
      if (pending.size >= max && !pending.has(id)) return;
      // A reused id belongs to a new flow, so it moves to the end.
      pending.delete(id);
      pending.set(id, { event, at: now });
    },

    take(id) {
      const event = pending.get(id)?.event ?? null;
      if (event) pending.delete(id);
      return event;
    },

    takeUntil(time) {
      const events: Uint8Array[] = [];
      for (const [id, { event, at }] of pending) {
        if (at > time) break;
        pending.delete(id);
        events.push(event);
      }
      return events;
    },

    get oldest() {
      for (const { at } of pending.values()) return at;
      return null;
    },

    clear: () => pending.clear(),
  };
}
