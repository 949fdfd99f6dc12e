import { type Clock, pause } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';

export interface ServerContactOptions {
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Whether the API server answers, by the requests of all informers of a process: logged once when it becomes
 * unreachable, and once when it answers again.
 */
export interface ServerContact {
  /** Returns the part of an informer of this resource. */
  follower(resource: string): Follower;
  /** Ends the waits of all informers: the API server answers again. */
  wake(): void;
}

export interface Follower {
  /** Records that a request failed. `cachedAt`: when the objects that are used until it succeeds were current, or null. */
  lost(message: string, cachedAt: number | null): void;
  /** Records that a request succeeded. The first one ends the waits of all informers. */
  answered(): void;
  /** Records that the informer has ended. */
  end(): void;
  /** Resolves after a wait, at the latest when the API server answers another informer; never rejects. */
  pause(ms: number, signal: AbortSignal): Promise<void>;
}

const shared = new WeakMap<object, ServerContact>();

/** Returns the contact that all informers of a client share. */
export function contactOf(client: object, options: ServerContactOptions): ServerContact {
  const known = shared.get(client);
  if (known) return known;
  const fresh = createServerContact(options);
  shared.set(client, fresh);
  return fresh;
}

export function createServerContact({ clock, logger }: ServerContactOptions): ServerContact {
  const lost = new Set<Follower>();
  let since = 0;
  let waking = new AbortController();
  const wake = () => {
    waking.abort();
    waking = new AbortController();
  };
  const found = (follower: Follower): boolean => lost.delete(follower) && lost.size === 0;
  return {
    wake,
    follower(resource) {
      const follower: Follower = {
        lost(message, cachedAt) {
          const isFirst = lost.size === 0;
          if (isFirst) since = clock.now();
          lost.add(follower);
          const text = `lost the connection to the API server: ${message}`;
          if (!isFirst) return logger.debug({ resource }, text);
          const until =
            cachedAt === null
              ? ''
              : `; using the objects of ${new Date(cachedAt).toISOString()} until it answers`;
          logger.warn({ resource }, `${text}${until}`);
        },
        answered() {
          if (!lost.has(follower)) return;
          wake();
          if (found(follower))
            logger.info(
              {},
              `the API server answers again, after ${Math.round((clock.now() - since) / 1000)} s`,
            );
        },
        end: () => void found(follower),
        async pause(ms, signal) {
          await pause(clock, ms, lost.has(follower) ? AbortSignal.any([signal, waking.signal]) : signal);
        },
      };
      return follower;
    },
  };
}
