import { READY } from '../../kernel/epoll.ts';
import { socketAddress } from '../../kernel/netns.ts';
import {
  type AcceptedStream,
  awaitConnection,
  connectStream,
  localAddress,
} from '../../kernel/stream-socket.ts';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import { afterRunning } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEventKind } from '../flow-event.ts';
import type { ProxyOptions } from './pool-proxy.ts';

/** The timeout before the next endpoint is tried: for the first, the second, … attempt of a connection. */
const DIAL_TIMEOUTS_MS = [250, 500, 1000, 2000] as const;
/** The maximum number of unanswered attempts of a connection, even if more endpoints are left. */
const MAX_WAITS = 16;
/** Returns how long a client waits before it is reset if none of its endpoints answers. */
export function longestDialMs(endpoints: number): number {
  const count = endpoints === 0 ? 0 : Math.ceil(DIAL_TIMEOUTS_MS.length / endpoints) * endpoints;
  let sum = 0;
  for (let waits = 0; waits < Math.min(count, MAX_WAITS); waits++) sum += dialTimeoutMs(waits);
  return sum;
}

const dialTimeoutMs = (waits: number): number => DIAL_TIMEOUTS_MS[Math.min(waits, 3)] ?? 0;

type Outcome = 'connected' | 'refused' | 'no-answer' | 'gone';
/** How an attempt ended; its socket is closed unless it is connected. */
export interface Dialled {
  readonly outcome: Outcome;
  readonly server: number;
  /** The local end of the connection to the endpoint; null: there is none, or flows are not watched. */
  readonly local: SocketAddress | null;
}
/** An attempt that was not answered at once. */
interface Pending extends Omit<Dialled, 'outcome'> {
  readonly to: Uint8Array;
  readonly timeoutMs: number;
}
export type Found = Dialled & { readonly endpoint: Endpoint };

/** A client without an endpoint yet. */
export interface Client extends AcceptedStream {
  /** True if it has reset its connection, or the proxy was closed. */
  isGone: boolean;
  /** Ends the attempt that it waits for. */
  leave: (() => void) | null;
}

/** Reports an event of a client's connection; `proxy`: the local end of the connection to the endpoint. */
export type Report = (kind: FlowEventKind, endpoint: Endpoint, proxy: SocketAddress | null) => void;

const addresses = new WeakMap<Endpoint, Uint8Array>();

function addressOf(endpoint: Endpoint): Uint8Array {
  let address = addresses.get(endpoint);
  if (!address) {
    address = socketAddress(endpoint.ip, endpoint.port);
    addresses.set(endpoint, address);
  }
  return address;
}

/** Connects clients of a listener to endpoints. */
export interface TcpDialler {
  /** Tries endpoints until one answers, each at least once, and again while some may only be slow. Yields what it awaits. */
  dial(client: Client, report: Report): Generator<Promise<Dialled>, Found | null, Dialled>;
  /** Returns the local end of a connection to an endpoint; null if flows are not watched. */
  endOf(server: number): SocketAddress | null;
}

/** `onScarcity`: called if the process or the kernel has no room for another connection. */
export function createTcpDialler(options: ProxyOptions, onScarcity: (error: string) => void): TcpDialler {
  const { balancer, open, epoll, clock, logger, admits, onOutcome } = options;
  const { isWatched = () => true } = options;

  function* dial(client: Client, report: Report): Generator<Promise<Dialled>, Found | null, Dialled> {
    const source = client.ip;
    const tried: string[] = [];
    let waits = 0;
    let denied: Endpoint | null = null;
    do {
      const waitsBefore = waits;
      for (const endpoint of balancer.candidates(source)) {
        if (admits && !admits(source, endpoint)) {
          denied ??= endpoint;
          continue;
        }
        const dialled = dialOne(endpoint, dialTimeoutMs(waits), client);
        const result = dialled instanceof Promise ? yield dialled : dialled;
        const { outcome, local } = result;
        if (outcome === 'gone') return null;
        if (outcome === 'connected') {
          if (balancer.answered(endpoint)) onOutcome?.('success', endpoint, source);
          balancer.bind(source, endpoint);
          return { ...result, endpoint };
        }
        balancer.failed(endpoint);
        const kind = outcome === 'refused' ? 'reset' : 'timeout';
        onOutcome?.(kind, endpoint, source);
        report(kind, endpoint, local);
        tried.push(`${hostPort(endpoint)} ${outcome}`);
        if (outcome === 'no-answer' && ++waits === MAX_WAITS) break;
      }
      if (waits === waitsBefore) break;
    } while (waits < DIAL_TIMEOUTS_MS.length);
    if (denied && tried.length === 0) report('denied', denied, null);
    logger.debug({ client: source, tried, denied }, 'no endpoint accepts it: the client is reset');
    return null;
  }

  /** Connects to an endpoint; at once if its kernel answers before the call returns. */
  function dialOne(endpoint: Endpoint, timeoutMs: number, client: Client): Dialled | Promise<Dialled> {
    if (client.isGone) return ended('gone', -1, null);
    let server = -1;
    try {
      server = open();
      const to = addressOf(endpoint);
      let attempt = connectStream(server, to);
      // A second call that reports a refusal takes the address from the socket.
      const local = endOf(server);
      if (attempt === 'pending') attempt = connectStream(server, to);
      if (attempt !== 'pending') return ended(attempt, server, local);
      return answerOf(client, { server, to, local, timeoutMs });
    } catch (error) {
      onScarcity(messageOf(error));
      return ended('gone', server, null);
    }
  }

  /** Waits for the answer to an attempt. Throws if the kernel has no memory to watch it. */
  function answerOf(client: Client, { server, to, local, timeoutMs }: Pending): Promise<Dialled> {
    const { promise, resolve } = Promise.withResolvers<Dialled>();
    const finish = (outcome: Outcome) => {
      if (client.leave === null) return;
      client.leave = null;
      cancel();
      resolve(ended(outcome, server, local));
    };
    awaitConnection(epoll, server, to, finish);
    epoll.watch(client.fd, READY.changes, (ready) => {
      if ((ready & READY.error) !== 0) leave(client);
    });
    const cancel = afterRunning(clock, timeoutMs, () => finish('no-answer'));
    client.leave = () => finish('gone');
    return promise;
  }

  const endOf = (server: number): SocketAddress | null => (isWatched() ? localAddress(server) : null);

  function ended(outcome: Outcome, server: number, local: SocketAddress | null): Dialled {
    if (outcome !== 'connected' && server >= 0) epoll.close(server);
    return { outcome, server, local };
  }

  return { dial, endOf };
}

/** Ends the attempt that a client waits for, and all further ones. */
export function leave(client: Client): void {
  client.isGone = true;
  client.leave?.();
}
