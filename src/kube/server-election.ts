import { type Clock, pause } from '../lib/clock.ts';

interface AskOptions<S> {
  readonly clock: Clock;
  /** Resolves to whether the server is ready; rejects if it does not answer. */
  readonly ask: (server: S, signal: AbortSignal) => Promise<boolean>;
  readonly signal: AbortSignal;
}

export interface ElectionOptions<S> extends AskOptions<S> {
  /** A server is asked as soon as the one before it has failed, or this long after it. */
  readonly staggerMs: number;
}

export interface Elected<S> {
  readonly server: S;
  /** False: it answers that it is not ready, and no other server is. */
  readonly isReady: boolean;
}

/** Resolves to the first server that is ready, preferred ones first, or else to one that answers; null: none does. */
export function electServer<S>(
  servers: readonly S[],
  { clock, staggerMs, ask, signal }: ElectionOptions<S>,
): Promise<Elected<S> | null> {
  return new Promise((resolve) => {
    const ending = new AbortController();
    const asking = AbortSignal.any([signal, ending.signal]);
    const waiting = [...servers];
    let pending = 0;
    let answering: S | null = null;
    let cancel = () => {};
    const finish = (elected: Elected<S> | null) => {
      cancel();
      ending.abort();
      resolve(elected);
    };
    const settle = (server: S, isReady: boolean | null) => {
      pending--;
      if (ending.signal.aborted) return;
      if (isReady) return finish({ server, isReady });
      if (isReady === false) answering ??= server;
      askNext();
    };
    const askNext = () => {
      cancel();
      if (asking.aborted) return finish(null);
      const server = waiting.shift();
      if (server === undefined) {
        if (pending === 0) finish(answering === null ? null : { server: answering, isReady: false });
        return;
      }
      pending++;
      ask(server, asking).then(
        (isReady) => settle(server, isReady),
        () => settle(server, null),
      );
      cancel = clock.after(staggerMs, askNext);
    };
    askNext();
  });
}

/**
 * Asks all servers at once, and each that does not answer again after a pause, so that one that is slow does not delay
 * the others. Resolves to the first that answers, ready or not; null: the signal aborted before.
 */
export async function awaitServer<S>(
  servers: readonly S[],
  { clock, ask, signal, pauseMs }: AskOptions<S> & { readonly pauseMs: () => number },
): Promise<Elected<S> | null> {
  const ending = new AbortController();
  const asking = AbortSignal.any([signal, ending.signal]);
  const follow = async (server: S): Promise<Elected<S> | null> => {
    while (!asking.aborted) {
      try {
        return { server, isReady: await ask(server, asking) };
      } catch {
        await pause(clock, pauseMs(), asking);
      }
    }
    return null;
  };
  const elected = await Promise.race(servers.map(follow));
  ending.abort();
  return elected;
}
