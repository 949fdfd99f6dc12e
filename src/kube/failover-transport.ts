import type { Clock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { awaitServer, type Elected, electServer } from './server-election.ts';
import { type ApiRequest, type ApiResponse, isUnsent, type Transport } from './transport.ts';

/** One of the API servers of a cluster. */
export interface ServerAddress {
  /** "https://10.0.0.1:6443" */
  readonly url: string;
  /** The name that its certificate must have; null: that of the kubeconfig, or the host of the URL. */
  readonly serverName: string | null;
}

export interface FailoverOptions {
  /** Returns the servers, preferred ones first, at least one. */
  readonly servers: () => Promise<readonly ServerAddress[]>;
  readonly open: (server: ServerAddress) => Transport & { close(): void };
  /** Called when a server answers after a time in which none did. */
  readonly onReturn: () => void;
  readonly clock: Clock;
  /** 0 ≤ n < 1; spreads the requests of agents to a server that returns. */
  readonly random: () => number;
  readonly logger: Logger;
}

/** How long a server may take to say that it is ready. */
const READY_MS = 10_000;
/** The advance of a preferred server over the next one. */
const STAGGER_MS = 500;
/** Interval between attempts while no server answers. */
const OUTAGE_MS = 1000;
/** How long the same servers are asked, before the list of servers is read again. */
const ROUND_MS = 30_000;
/** Interval between attempts to return to a preferred server. */
const PREFERRED_MS = 30_000;
/** How long the 5xx of a server that says that it is ready are taken for those of single requests. */
const TRUST_MS = 5000;

/**
 * Creates a transport to the first server that is ready. It moves to another one if that fails: a connection breaks or
 * is refused, the connection breaks during a response, or it answers with a 5xx and is not ready. A request that only reads, or that was
 * not sent, is then sent to the other server. It returns to a preferred server after that is ready again; responses that
 * have begun, such as watches, continue where they are. With one server, requests are passed on.
 */
export function failoverTransport(options: FailoverOptions): Transport & { close(): void } {
  const { servers, open, onReturn, clock, random, logger } = options;
  const transports = new Map<string, Transport & { close(): void }>();
  const closing = new AbortController();
  let current: ServerAddress | null = null;
  let election: Promise<ServerAddress | null> | null = null;
  /** Why none of the servers answers; null: one does. */
  let outage: Error | null = null;
  /** The failure of the latest attempt in the background, which is logged once. */
  let problem: string | null = null;
  let trustedUntil = Number.NEGATIVE_INFINITY;
  let cancelAttempt = () => {};

  const transportOf = (server: ServerAddress) => {
    const known = transports.get(keyOf(server));
    if (known) return known;
    const fresh = open(server);
    transports.set(keyOf(server), fresh);
    return fresh;
  };

  /** Asks a server whether it is ready; failures are noted in `failures`. */
  const asker = (failures: string[]) => async (server: ServerAddress, signal: AbortSignal) => {
    try {
      return await isReady(transportOf(server), signal, clock);
    } catch (error) {
      failures.push(`${server.url}: ${messageOf(error)}`);
      throw error;
    }
  };
  const use = ({ server, isReady }: Elected<ServerAddress>) => {
    current = server;
    if (!isReady) trustedUntil = clock.now() + TRUST_MS;
    if (outage === null) return;
    outage = null;
    onReturn();
  };

  /** Asks all servers, the current one first, and uses the first that is ready. `reason`: why the current one may not be. */
  const choose = (reason: string): Promise<ServerAddress | null> => {
    election ??= (async () => {
      const all = await servers();
      const before = find(all, current);
      const failures: string[] = [];
      const elected = await electServer(before ? [before, ...all.filter((one) => one !== before)] : all, {
        clock,
        staggerMs: STAGGER_MS,
        ask: asker(failures),
        signal: closing.signal,
      });
      if (closing.signal.aborted) return null;
      if (elected === null) {
        outage = noAnswer(failures);
        return null;
      }
      const { server } = elected;
      if (before && server !== before)
        logger.warn({}, `API server ${before.url} fails (${reason}): using ${server.url}`);
      use(elected);
      if (server === before) trustedUntil = clock.now() + TRUST_MS;
      return server;
    })().finally(() => {
      election = null;
      schedule();
    });
    return election;
  };

  /** Waits for a server that answers. */
  const followAll = async () => {
    const all = await servers();
    const late = new AbortController();
    const cancel = clock.after(ROUND_MS, () => late.abort());
    const elected = await awaitServer(all, {
      clock,
      pauseMs: () => OUTAGE_MS * (0.5 + random() / 2),
      ask: asker([]),
      signal: AbortSignal.any([closing.signal, late.signal]),
    });
    cancel();
    if (elected) use(elected);
  };

  /** Looks for a preferred server, which may be ready again. */
  const preferred = async () => {
    const all = await servers();
    const place = current === null ? -1 : all.findIndex((one) => keyOf(one) === keyOf(current ?? one));
    if (place <= 0) return;
    const better = all.slice(0, place);
    const asked = { clock, staggerMs: STAGGER_MS, ask: asker([]), signal: closing.signal };
    const elected = await electServer(better, asked);
    if (!elected?.isReady || election !== null || closing.signal.aborted) return;
    current = elected.server;
    logger.info({}, `API server ${elected.server.url} answers again, and is used`);
  };

  /** Attempts fail if the list of servers, or the credentials, cannot be read; otherwise servers only do not answer. */
  const report = (message: string | null) => {
    if (message !== null && message !== problem && !closing.signal.aborted)
      logger.warn({}, `failed to look for API servers, trying again: ${message}`);
    problem = message;
  };
  const schedule = () => {
    cancelAttempt();
    if (closing.signal.aborted) return;
    const [ms, attempt] = outage === null ? [PREFERRED_MS, preferred] : [OUTAGE_MS, followAll];
    cancelAttempt = clock.after(ms * (0.5 + random() / 2), () => {
      attempt()
        .then(
          () => report(null),
          (error: unknown) => report(messageOf(error)),
        )
        .finally(schedule);
    });
  };

  /** Returns the server for another attempt after a failure of `server`, or null. */
  const after = async (server: ServerAddress, { response, error }: Outcome) => {
    if (current && keyOf(current) !== keyOf(server)) return current;
    if (response && clock.now() < trustedUntil) return null;
    const chosen = await choose(response ? `HTTP status ${response.status}` : messageOf(error));
    const stays = chosen !== null && keyOf(chosen) === keyOf(server);
    return response && stays ? null : chosen;
  };

  /** An incomplete response says the same of its server as a request that fails. */
  const watched = (server: ServerAddress, response: ApiResponse, { signal }: ApiRequest): ApiResponse => ({
    ...response,
    body: observed(response.body, (error) => {
      if (signal?.aborted || closing.signal.aborted || current === null) return;
      if (keyOf(current) !== keyOf(server) || outage !== null) return;
      choose(`the connection broke during a response: ${messageOf(error)}`).catch((failure: unknown) =>
        report(messageOf(failure)),
      );
    }),
  });

  const send = async (request: ApiRequest): Promise<ApiResponse> => {
    const all = await servers();
    const [only] = all;
    if (only && all.length === 1) {
      current = only;
      outage = null;
      return await transportOf(only)(request);
    }
    // The server in use is in doubt during an election.
    await election;
    let server = outage === null ? (find(all, current) ?? (await choose('it is no longer in use'))) : null;
    for (let left = all.length; server !== null; left--) {
      const outcome: Outcome = await attempt(transportOf(server), request);
      if (!isFailure(outcome, request)) return watched(server, answerOf(outcome), request);
      const next: ServerAddress | null = await after(server, outcome);
      const isRepeatable = request.method === 'GET' || (outcome.error !== null && isUnsent(outcome.error));
      if (next === null || left <= 1 || !isRepeatable || request.signal?.aborted) return answerOf(outcome);
      // The other server's answer replaces this one: if its body is incomplete, only its connection ends.
      if (outcome.response) readAll(outcome.response).catch(() => {});
      server = next;
    }
    throw outage ?? noAnswer([]);
  };
  return Object.assign(send, {
    close() {
      closing.abort();
      cancelAttempt();
      for (const transport of transports.values()) transport.close();
    },
  });
}

/** A response, or the failure of a request without one. */
type Outcome =
  | { readonly response: ApiResponse; readonly error: null }
  | { readonly response: null; readonly error: unknown };

async function attempt(transport: Transport, request: ApiRequest): Promise<Outcome> {
  try {
    return { response: await transport(request), error: null };
  } catch (error) {
    return { response: null, error };
  }
}

function answerOf(outcome: Outcome): ApiResponse {
  if (outcome.response) return outcome.response;
  throw outcome.error;
}

/** A request that its sender has ended says nothing about the server. */
const isFailure = ({ response }: Outcome, { signal }: ApiRequest): boolean =>
  response ? response.status >= 500 : signal?.aborted !== true;

/** Asks a server whether it is ready; one that forbids the question answers requests. Rejects if it does not answer. */
async function isReady(transport: Transport, signal: AbortSignal, clock: Clock): Promise<boolean> {
  const late = new AbortController();
  const cancel = clock.after(READY_MS, () => late.abort(noAnswer([])));
  try {
    const response = await transport({
      method: 'GET',
      path: '/readyz',
      headers: {},
      signal: AbortSignal.any([signal, late.signal]),
    });
    // Its connection is used again, and the election that ends ends no request that is complete.
    await readAll(response);
    return response.status < 500;
  } finally {
    cancel();
  }
}

async function readAll({ body }: ApiResponse): Promise<void> {
  for await (const _ of body);
}

/** Passes a body on, and reports an incomplete one. */
async function* observed(
  body: AsyncIterable<Uint8Array>,
  onBreak: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    onBreak(error);
    throw error;
  }
}

const keyOf = ({ url, serverName }: ServerAddress): string => `${url} ${serverName ?? ''}`;

const find = (all: readonly ServerAddress[], one: ServerAddress | null): ServerAddress | null =>
  (one && all.find((other) => keyOf(other) === keyOf(one))) ?? null;

function noAnswer(failures: readonly string[]): FairleadError {
  const details = failures.length === 0 ? '' : `: ${failures.join('; ')}`;
  return new FairleadError(`no API server answers${details}`, {
    op: 'connect to API server',
    code: 'ETIMEDOUT',
  });
}
