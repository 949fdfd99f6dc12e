/** Counts the rules in use that name a port ("name/protocol"). */
export interface PortNames {
  count(port: string, by: 1 | -1): void;
  has(port: string): boolean;
}

/** `changed`: called at the first and the last use of a name. */
export function createPortNames(changed: (port: string) => void): PortNames {
  const uses = new Map<string, number>();
  return {
    count(port, by) {
      const before = uses.get(port) ?? 0;
      if (before + by > 0) uses.set(port, before + by);
      else uses.delete(port);
      if (before > 0 !== before + by > 0) changed(port);
    },
    has: (port) => uses.has(port),
  };
}
