/** A watch whose client may lag. */
export interface LaggingWatch {
  /** The bytes that wait for the client. */
  unread(): number;
  /** Watches of one group have the same bytes in memory. */
  group(): unknown;
  disconnect(): void;
}

/** Bounds the bytes that wait for the clients of all watches: clients that do not read would fill the server's memory together. */
export interface UnreadBudget {
  /** Returns a function that ends the membership. */
  join(watch: LaggingWatch): () => void;
  /** Counts bytes that one of the watches has received. */
  received(bytes: number): void;
}

/** The sum is taken again when so much has been received: it is exceeded by at most this part. */
const PART = 8;

/** When more than `max` bytes wait, the watches that lag the most are disconnected; their clients may watch again. */
export function createUnreadBudget(max: number): UnreadBudget {
  const watches = new Set<LaggingWatch>();
  let fresh = 0;
  const check = () => {
    const lagging = [...watches]
      .map((watch) => ({ watch, unread: watch.unread(), group: watch.group() }))
      .filter(({ unread }) => unread > 0)
      .sort((a, b) => b.unread - a.unread);
    const groups = Map.groupBy(lagging, ({ group }) => group);
    let sum = 0;
    for (const [first] of groups.values()) sum += first?.unread ?? 0;
    /** By group: how many of its watches, those that lag the most, are disconnected. */
    const gone = new Map<unknown, number>();
    for (const { watch, unread, group } of lagging) {
      if (sum <= max) return;
      const count = (gone.get(group) ?? 0) + 1;
      gone.set(group, count);
      sum -= unread - (groups.get(group)?.[count]?.unread ?? 0);
      watch.disconnect();
    }
  };
  return {
    join(watch) {
      watches.add(watch);
      return () => watches.delete(watch);
    },
    received(bytes) {
      fresh += bytes;
      if (fresh < max / PART) return;
      fresh = 0;
      check();
    },
  };
}
