import type { Clock } from './clock.ts';

/**
 * Returns a function that shares calls among callers. Each one gets the result of a call that began after it asked, or at
 * most `maxAgeMs` (0 if omitted) before; at most one call runs at a time.
 */
export function shareCalls<T>(call: () => Promise<T>, clock: Clock): (maxAgeMs?: number) => Promise<T> {
  let running: Promise<T> | null = null;
  let next: Promise<T> | null = null;
  let latest: { readonly call: Promise<T>; readonly startedAt: number } | null = null;
  const start = (): Promise<T> => {
    const started = call();
    running = started;
    latest = { call: started, startedAt: clock.now() };
    const end = () => {
      if (running === started) running = null;
    };
    started.then(end, () => {
      end();
      if (latest?.call === started) latest = null;
    });
    return started;
  };
  return (maxAgeMs = 0) => {
    const age = latest === null ? Number.NaN : clock.now() - latest.startedAt;
    // Below 0 after the clock was set back.
    if (latest !== null && maxAgeMs > 0 && age >= 0 && age <= maxAgeMs) return latest.call;
    if (running === null) return start();
    const follow = () => {
      next = null;
      return start();
    };
    next ??= running.then(follow, follow);
    return next;
  };
}
