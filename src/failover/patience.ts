import { familyOf, type SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { type EndpointKey, endpointKey } from '../service/endpoint-key.ts';
import type { Frontend, ServiceMap } from '../service/model.ts';
import { poolsOf } from '../service/pools.ts';
import { frontendKey } from '../service/service-compiler.ts';
import { createAnswerTimes } from './answer-times.ts';
import { EJECTION_RULES } from './ejection-rules.ts';
import type { PendingConnection } from './outcome.ts';

export interface PatienceOptions {
  readonly clock: Clock;
  /** The programmed Service map; null: none yet. */
  readonly map: () => ServiceMap | null;
  /**
   * Which destinations sockets retransmit their SYNs to after `programUnansweredMs`; null: none. Connections to these
   * that are not answered in time reach another endpoint by the first of these SYNs.
   */
  readonly shortTimers: () => { covers(address: string): boolean } | null;
}

/** How long connections to Services are waited for, from the Services and from how their endpoints answered before. */
export interface Patience {
  /** Returns the milliseconds after which a connection counts as unanswered; null: it is ignored. */
  of(connection: PendingConnection): number | null;
  /**
   * Returns false if the next SYN of a connection would reach the same endpoint: the Service has no other one. Its entry then
   * stays: it routes an ICMP error, such as that of an unreachable host, back to the client.
   */
  isMovable(connection: PendingConnection): boolean;
  /** Returns false while no connection counts as unanswered early (`earlyUnansweredMs`). */
  mayBeEarly(): boolean;
  /** Returns false while no Service is known, so that every connection is ignored. */
  knowsServices(): boolean;
  /** Returns the frontend that a client connected to; null: none, or one without failover. */
  frontendOf(connection: Pick<PendingConnection, 'destination' | 'protocol'>): Frontend | null;
  /** Records an answer to a client's first packet. */
  answered(connection: PendingConnection, isFast: boolean): void;
  /** Records that an endpoint answers, but later than early connections wait. */
  notFast(endpoint: EndpointKey): void;
  /** Records that an endpoint answers later than any connection waits: none to it is given up for ten minutes. */
  slow(endpoint: EndpointKey): void;
}

const SLOW_FOR_MS = 600_000;
const { agentUnansweredMs, earlyUnansweredMs } = EJECTION_RULES;

export function createPatience({ clock, map, shortTimers }: PatienceOptions): Patience {
  /** Endpoints that answer late, and the end of their exemption. */
  const slow = new Map<EndpointKey, number>();
  const answerTimes = createAnswerTimes(clock);

  function frontendOf({ destination, protocol }: Pick<PendingConnection, 'destination' | 'protocol'>) {
    const family = familyOf(destination.ip);
    const frontends = map()?.frontends;
    if (!family || !frontends) return null;
    const frontend =
      frontends.get(frontendKey(family, destination.ip, protocol, destination.port)) ??
      frontends.get(frontendKey(family, null, protocol, destination.port));
    return frontend?.options.failover ? frontend : null;
  }

  return {
    frontendOf,
    of(connection) {
      const key = keyOf(connection);
      // It is far away or very busy: deleting its connections would only break them.
      if (slow.size > 0 && (slow.get(key) ?? 0) > clock.now()) return null;
      const frontend = frontendOf(connection);
      if (!frontend) return null;
      const isEarly =
        shortTimers()?.covers(connection.destination.ip) === true &&
        answerTimes.isFast(key) &&
        hasOther(frontend, connection.endpoint);
      return isEarly ? earlyUnansweredMs : agentUnansweredMs;
    },
    isMovable(connection) {
      const frontend = frontendOf(connection);
      if (!frontend || hasOther(frontend, connection.endpoint)) return true;
      return poolsOf(frontend).every(({ endpoints }) => endpoints.length === 0);
    },
    mayBeEarly: () => shortTimers() !== null,
    knowsServices: () => map() !== null,
    answered: (connection, isFast) => answerTimes.answered(keyOf(connection), isFast),
    notFast: (endpoint) => answerTimes.forget(endpoint),
    slow(endpoint) {
      for (const [other, until] of slow) if (until <= clock.now()) slow.delete(other);
      slow.set(endpoint, clock.now() + SLOW_FOR_MS);
    },
  };
}

export const keyOf = ({ endpoint, protocol }: PendingConnection): EndpointKey =>
  endpointKey(endpoint.ip, endpoint.port, protocol);

/** Returns true if a new connection may reach another endpoint. */
const hasOther = (frontend: Frontend, { ip, port }: SocketAddress): boolean =>
  poolsOf(frontend).some(({ endpoints }) => endpoints.some((one) => one.ip !== ip || one.port !== port));
