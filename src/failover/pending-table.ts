/** A connection whose first packet was sent. */
export interface BegunConnection {
  readonly id: number;
  readonly event: Uint8Array;
  readonly at: number;
}

/** Pending connections by the id of their connection tracking entry, the oldest first; bounded. */
export interface PendingTable {
  readonly size: number;
  /** Adds a connection; ignored if the table is full. */
  begin(id: number, event: Uint8Array, now: number): void;
  /** Removes and returns a connection, or null. */
  take(id: number): BegunConnection | null;
  /** Removes and returns the connections that began at `time` or before. */
  takeUntil(time: number): BegunConnection[];
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
      const begun = pending.get(id);
      if (!begun) return null;
      pending.delete(id);
      return { id, ...begun };
    },

    takeUntil(time) {
      const taken: BegunConnection[] = [];
      for (const [id, { event, at }] of pending) {
        if (at > time) break;
        pending.delete(id);
        taken.push({ id, event, at });
      }
      return taken;
    },

    get oldest() {
      for (const { at } of pending.values()) return at;
      return null;
    },

    clear: () => pending.clear(),
  };
}
