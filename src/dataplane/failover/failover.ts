import type { NetnsRef } from '../../kernel/netns.ts';
import { familyOf, type IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/log.ts';
import { type EndpointKey, endpointKey } from '../../service/endpoint-key.ts';
import {
  type Change,
  type Frontend,
  type Pool,
  type PortRef,
  type ServiceMap,
  SOURCE_CLASSES,
} from '../../service/model.ts';
import { frontendKey } from '../../service/service-compiler.ts';
import { type Attempt, startAttemptWatch } from './attempt-watch.ts';
import { dial } from './dial.ts';
import {
  createEjectionPolicy,
  type Decision,
  EJECTION_SETTINGS,
  type EjectionSettings,
} from './ejection-policy.ts';
import type { AddressAndPort, Outcome } from './outcome.ts';

export interface FailoverOptions {
  readonly families: readonly IPFamily[];
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly clock: Clock;
  readonly logger: Logger;
  /** What is programmed now; null: nothing yet. */
  readonly map: () => ServiceMap | null;
  /**
   * True while the mode's connections to endpoints are entries of connection tracking whose deletion lets the client
   * be balanced anew.
   */
  readonly tracked: () => boolean;
  /** All endpoints that are to be out of use, for `ServiceTable.setEjected`. Their tables wait for it. */
  readonly onEjected: (endpoints: ReadonlySet<EndpointKey>) => void;
  /** An endpoint was ejected, or came back. For events and metrics. */
  readonly onVerdict?: (verdict: FailoverVerdict) => void;
  readonly onUnanswered?: (count: number) => void;
  readonly onOverrun?: () => void;
  readonly settings?: EjectionSettings;
}

export type FailoverVerdict = Exclude<Decision, { kind: 'check' }> & {
  /** The Service through which it failed last. */
  readonly owner: PortRef;
};

/** Finds endpoints that do not answer, has them taken out of use, and lets them return. */
export interface Failover {
  /** What somebody else saw: a BPF program, a proxy. */
  report(outcome: Outcome): void;
  /** This change is programmed: endpoints that do not serve any more are forgotten. */
  follow(change: Change): void;
  /** Out of use now. */
  readonly ejected: ReadonlySet<EndpointKey>;
  close(): void;
}

/** How long this node's own attempt waits: so that a verdict is there before clients send their second SYN. */
const CHECK_MS = 200;
/** For so long, an endpoint that was seen to answer late is not looked at again. */
const SLOW_FOR_MS = 600_000;

export function startFailover(options: FailoverOptions): Failover {
  const { families, netns, clock, logger, map, tracked, settings = EJECTION_SETTINGS } = options;
  const policy = createEjectionPolicy(settings);
  /** Of those that the policy tracks. */
  const known = new Map<EndpointKey, { readonly endpoint: AddressAndPort; readonly owner: PortRef }>();
  /** Endpoints that answer, but late, and until when they are left alone. */
  const slow = new Map<EndpointKey, number>();
  let cancel: (() => void) | null = null;
  let closed = false;

  /** The Service that a client meant; null: none, or one that wants no failover. */
  function frontendOf({ destination, protocol }: Pick<Outcome, 'destination' | 'protocol'>): Frontend | null {
    const family = familyOf(destination.ip);
    const frontends = map()?.frontends;
    if (!family || !frontends) return null;
    const frontend =
      frontends.get(frontendKey(family, destination.ip, protocol, destination.port)) ??
      frontends.get(frontendKey(family, null, protocol, destination.port));
    return frontend?.options.failover ? frontend : null;
  }

  function observe(outcome: Outcome): void {
    const { endpoint, protocol } = outcome;
    const key = endpointKey(endpoint.ip, endpoint.port, protocol);
    if (outcome.kind === 'success' && !policy.isTracked(key)) return;
    const frontend = frontendOf(outcome);
    if (!frontend) return;
    const pools = poolsOf(frontend).map((pool) => keysOf(pool, protocol));
    if (!pools.some((pool) => pool.includes(key))) return;
    known.set(key, { endpoint, owner: frontend.owner });
    carryOut(policy.observe(clock.now(), key, outcome, pools));
  }

  function carryOut(decisions: readonly Decision[]): void {
    for (const decision of decisions) {
      const about = known.get(decision.endpoint);
      if (!about) continue;
      if (decision.kind === 'check') {
        void check(decision.endpoint, about.endpoint);
        continue;
      }
      logger.info({ endpoint: decision.endpoint, cause: decision.cause }, `endpoint ${decision.kind}`);
      options.onEjected(policy.ejected);
      options.onVerdict?.({ ...decision, owner: about.owner });
    }
    schedule();
  }

  /** Far away, or very busy: freeing its connections would only break them. */
  function isSlow({ endpoint, protocol }: Attempt): boolean {
    if (slow.size === 0) return false;
    return (slow.get(endpointKey(endpoint.ip, endpoint.port, protocol)) ?? 0) > clock.now();
  }

  function answersLate(key: EndpointKey): void {
    if (closed) return;
    for (const [other, until] of slow) if (until <= clock.now()) slow.delete(other);
    slow.set(key, clock.now() + SLOW_FOR_MS);
    logger.info({ endpoint: key }, 'endpoint answers late: its connections are left to themselves');
    carryOut(policy.observe(clock.now(), key, { kind: 'success', client: '' }, []));
  }

  async function check(key: EndpointKey, endpoint: AddressAndPort): Promise<void> {
    const result = await dial(endpoint, CHECK_MS, clock, netns, () => answersLate(key));
    if (!closed) carryOut(policy.checked(clock.now(), key, result));
  }

  function schedule(): void {
    cancel?.();
    cancel = null;
    const next = policy.nextDue;
    if (closed || next === null) {
      if (!policy.active) known.clear();
      return;
    }
    cancel = clock.after(Math.max(1, next - clock.now()), () => {
      cancel = null;
      carryOut(policy.due(clock.now()));
    });
  }

  /** Attempts are watched while the mode's are tracked; other modes report themselves. */
  let watch: { close(): void } | null = null;
  function watchAsWanted(): void {
    if (tracked() === (watch !== null)) return;
    watch?.close();
    watch = watch === null ? startWatch() : null;
  }
  const startWatch = () =>
    startAttemptWatch({
      families,
      ...(netns === undefined ? {} : { netns }),
      clock,
      logger,
      wanted: (attempt) => !isSlow(attempt) && frontendOf(attempt) !== null,
      wantsSuccess: () => policy.active,
      onOutcome: observe,
      ...(options.onUnanswered ? { onUnanswered: options.onUnanswered } : {}),
      ...(options.onOverrun ? { onOverrun: options.onOverrun } : {}),
    });
  watchAsWanted();

  return {
    report: observe,
    follow({ frontends }) {
      watchAsWanted();
      if (!policy.active) return;
      const before = policy.ejected.size;
      for (const { before: old, after } of frontends) {
        if (!old) continue;
        const now = new Set(after ? keysOfAll(after) : []);
        for (const key of keysOfAll(old)) {
          if (!policy.isTracked(key) || now.has(key)) continue;
          policy.forget(key);
          known.delete(key);
        }
      }
      if (policy.ejected.size !== before) options.onEjected(policy.ejected);
      schedule();
    },
    get ejected() {
      return policy.ejected;
    },
    close() {
      closed = true;
      cancel?.();
      watch?.close();
    },
  };
}

function poolsOf({ routes }: Frontend): Pool[] {
  const pools = new Set<Pool>();
  for (const source of SOURCE_CLASSES) {
    const route = routes[source];
    if (route.action === 'forward') pools.add(route.pool);
  }
  return [...pools];
}

/** With those that are out. */
function keysOf({ endpoints, ejected = [] }: Pool, protocol: Frontend['protocol']): EndpointKey[] {
  return [...endpoints, ...ejected].map(({ ip, port }) => endpointKey(ip, port, protocol));
}

const keysOfAll = (frontend: Frontend): EndpointKey[] =>
  poolsOf(frontend).flatMap((pool) => keysOf(pool, frontend.protocol));
