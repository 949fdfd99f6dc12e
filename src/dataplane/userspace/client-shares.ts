import { readFileSync } from 'node:fs';

/** What clients may hold of the process's descriptors. */
export interface ShareLimits {
  readonly perClient: number;
  /** Of all clients together: name servers, the API server and others need some, too. */
  readonly total: number;
}

/** Bounds the descriptors of each client, by its address, and of all clients. */
export interface ClientShares {
  /** Takes descriptors; false: the client, or all clients, have their share. */
  take(client: string, count: number): boolean;
  give(client: string, count: number): void;
}

/** Without a limit of its own, a process may have so many (the kernel's default of fs.nr_open). */
const UNLIMITED = 1 << 20;

/** Returns the limits for this process: half of its descriptors for one client, seven eighths for all. */
export function descriptorLimits(text = readFileSync('/proc/self/limits', 'utf8')): ShareLimits {
  const soft = Number(/^Max open files +(\d+)/m.exec(text)?.[1] ?? UNLIMITED);
  return { perClient: Math.floor(soft / 2), total: Math.floor((soft * 7) / 8) };
}

/** `onRefused`: called for each client when it is refused, once until it has ended all that it had. */
export function createClientShares(
  { perClient, total }: ShareLimits,
  onRefused: (client: string) => void,
): ClientShares {
  const held = new Map<string, number>();
  const refused = new Set<string>();
  let sum = 0;
  return {
    take(client, count) {
      const own = held.get(client) ?? 0;
      if (own + count > perClient || sum + count > total) {
        if (!refused.has(client)) {
          refused.add(client);
          onRefused(client);
        }
        return false;
      }
      held.set(client, own + count);
      sum += count;
      return true;
    },
    give(client, count) {
      const left = (held.get(client) ?? 0) - count;
      sum -= count;
      if (left > 0) held.set(client, left);
      else {
        held.delete(client);
        refused.delete(client);
      }
    },
  };
}
