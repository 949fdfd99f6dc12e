/** The clients of a name server of which queries were dropped lately. */
export interface LimitedClients {
  note(address: string): void;
  /** Whether a query of the client was dropped in the last 20 s. */
  has(address: string): boolean;
}

const NAMED_MS = 20_000;
const MAX_CLIENTS = 4096;

/** `now`: milliseconds. */
export function createLimitedClients(now: () => number): LimitedClients {
  const lastDrop = new Map<string, number>();
  const isRecent = (at: number | undefined) => at !== undefined && now() - at < NAMED_MS;
  return {
    note(address) {
      // The first is the one that was noted before all others.
      lastDrop.delete(address);
      lastDrop.set(address, now());
      const [[oldest, at] = ['', 0]] = lastDrop;
      if (lastDrop.size > MAX_CLIENTS || !isRecent(at)) lastDrop.delete(oldest);
    },
    has: (address) => isRecent(lastDrop.get(address)),
  };
}
