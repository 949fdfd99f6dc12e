/**
 * Returns a function that shares calls among callers that overlap: each one gets the result of a call that began after it
 * asked, so no result is older than its question, and at most one call runs at a time.
 */
export function shareCalls<T>(call: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | null = null;
  let next: Promise<T> | null = null;
  const start = (): Promise<T> => {
    const started = call();
    running = started;
    const end = () => {
      if (running === started) running = null;
    };
    started.then(end, end);
    return started;
  };
  return () => {
    if (running === null) return start();
    const follow = () => {
      next = null;
      return start();
    };
    next ??= running.then(follow, follow);
    return next;
  };
}
