import type { EndpointKey } from '../service/endpoint-key.ts';
import { maxEjected } from '../service/endpoint-selection.ts';
import { EJECTION_RULES } from './ejection-rules.ts';
import type { Outcome } from './outcome.ts';

/** The rules that tests vary. */
export type EjectionSettings = Pick<
  { readonly [K in keyof typeof EJECTION_RULES]: number },
  'agentTimeouts' | 'agentClients' | 'failureWindowMs' | 'firstEjectionMs' | 'maxEjectionMs' | 'forgiveMs'
>;

/** A decision, or a request for a check. */
export type Decision =
  | {
      readonly kind: 'ejected';
      readonly endpoint: EndpointKey;
      readonly cause: Cause;
      readonly forMs: number;
    }
  | { readonly kind: 'returned'; readonly endpoint: EndpointKey; readonly cause: 'answered' | 'trial' }
  /** The node must connect to the endpoint itself, and report the result by `checked`. */
  | { readonly kind: 'check'; readonly endpoint: EndpointKey };

export type Cause = 'reset' | 'timeout';

/**
 * The agent's part of the ejection policy (`ejection-rules.ts`). Pure: time is passed in, in milliseconds.
 *
 * | state     | event                                            | next state                                  |
 * | --------- | ------------------------------------------------ | ------------------------------------------- |
 * | healthy   | a refusal, a timeout                             | suspect; check                              |
 * | healthy   | a late answer                                    | suspect without failures; check             |
 * | suspect   | the check is refused                             | ejected                                     |
 * | suspect   | the check is not answered                        | suspect; check again after a second         |
 * | suspect   | enough timeouts of enough clients (the check is one) | ejected                                 |
 * | suspect   | an answer to any client                          | healthy                                     |
 * | ejected   | a failure                                        | ejected                                     |
 * | ejected   | an answer to any client                          | healthy; remembered for `forgiveMs`         |
 * | ejected   | its time is over                                 | ejected; check                              |
 * | ejected   | the check fails                                  | ejected for twice as long                   |
 * | ejected   | the check fails after the longest ejection       | on trial                                    |
 * | on trial  | a failure                                        | ejected for the longest time                |
 * | on trial  | an answer to any client                          | healthy                                     |
 * | any       | removed from its Service, or not ready           | forgotten: new when it is ready again       |
 *
 * An endpoint is not ejected when half of a Service's endpoints are ejected already, or when it is the last one.
 */
export interface EjectionPolicy {
  /** The ejected endpoints, in order of ejection. */
  readonly ejected: ReadonlySet<EndpointKey>;
  /** Returns true if successful outcomes matter for this endpoint. */
  isTracked(endpoint: EndpointKey): boolean;
  /** Whether any endpoint is tracked. */
  readonly active: boolean;
  /**
   * Records the outcome of a client's connection. `pools`: the endpoints of each pool of the Service, including ejected
   * ones.
   */
  observe(
    now: number,
    endpoint: EndpointKey,
    outcome: Pick<Outcome, 'kind' | 'client'>,
    pools: readonly (readonly EndpointKey[])[],
  ): Decision[];
  /** A client's connection has no answer yet, but endpoints like this one have: returns a check, or nothing. */
  late(now: number, endpoint: EndpointKey, pools: readonly (readonly EndpointKey[])[]): Decision[];
  /** Records the result of a check; null: it was not possible. */
  checked(now: number, endpoint: EndpointKey, result: Outcome['kind'] | null): Decision[];
  /** Drops an endpoint that was removed from its Service or no longer serves. */
  forget(endpoint: EndpointKey): void;
  /** Returns the decisions that are due. */
  due(now: number): Decision[];
  /** The next time to call `due`; null: never. */
  readonly nextDue: number | null;
}

interface Failure {
  readonly kind: Cause;
  readonly client: string;
  readonly at: number;
}

/** Whether new connections go to an endpoint. */
type Use =
  | {
      readonly kind: 'used';
      /** The latest failures. */
      readonly failures: readonly Failure[];
      /** The last check was not answered: check again at `nextCheckAt`. */
      readonly checkAgain: boolean;
    }
  /** In use without having answered: its next failure ejects it. */
  | { readonly kind: 'on trial' }
  | { readonly kind: 'ejected'; readonly until: number };

/** `late`: it began with a late answer; only if it fails, `nextCheckAt` applies to failures after it. */
type Check = 'none' | 'after failure' | 'late';

interface Record {
  use: Use;
  check: Check;
  /** Duration of the last ejection; 0: none. */
  lastMs: number;
  /** The time of its last return. */
  returnedAt: number;
  /** No check before this time, so that a client whose failures a check contradicts cannot cause a check for each. */
  nextCheckAt: number;
  /** No check for a late answer before this time. */
  nextEarlyCheckAt: number;
  /** The pools of the Service through which it failed last. */
  pools: readonly (readonly EndpointKey[])[];
}

/** The node's own check, counted as a client. */
const THIS_NODE = 'this node';
const CHECK_AGAIN_MS = 1000;
/** The maximum number of tracked endpoints; further failing ones are ignored. */
const MAX_TRACKED = 10_000;
const MAX_FAILURES = 16;
const WELL: Use = { kind: 'used', failures: [], checkAgain: false };

export function createEjectionPolicy(settings: EjectionSettings = EJECTION_RULES): EjectionPolicy {
  const records = new Map<EndpointKey, Record>();
  const ejected = new Set<EndpointKey>();

  const hasRoom = (endpoint: EndpointKey, { pools }: Record): boolean =>
    pools.some((pool) => {
      if (!pool.includes(endpoint)) return false;
      const out = pool.filter((key) => ejected.has(key)).length;
      return out < maxEjected(pool.length);
    });

  /** Returns an endpoint's record, new if there is none; null: too many endpoints are tracked. */
  const recordOf = (endpoint: EndpointKey, pools: Record['pools']): Record | null => {
    const known = records.get(endpoint);
    if (known) return Object.assign(known, { pools });
    if (records.size >= MAX_TRACKED) return null;
    const record: Record = {
      use: WELL,
      check: 'none',
      lastMs: 0,
      returnedAt: 0,
      nextCheckAt: 0,
      nextEarlyCheckAt: 0,
      pools,
    };
    records.set(endpoint, record);
    return record;
  };

  const eject = (now: number, endpoint: EndpointKey, record: Record, cause: Cause): Decision[] => {
    if (!hasRoom(endpoint, record)) return [];
    const forgiven = record.use.kind !== 'on trial' && now - record.returnedAt >= settings.forgiveMs;
    const forMs =
      record.lastMs === 0 || forgiven
        ? settings.firstEjectionMs
        : Math.min(record.lastMs * 2, settings.maxEjectionMs);
    record.use = { kind: 'ejected', until: now + forMs };
    record.lastMs = forMs;
    ejected.add(endpoint);
    return [{ kind: 'ejected', endpoint, cause, forMs }];
  };

  const bringBack = (
    now: number,
    endpoint: EndpointKey,
    record: Record,
    cause: 'answered' | 'trial',
  ): Decision[] => {
    ejected.delete(endpoint);
    record.use = cause === 'trial' ? { kind: 'on trial' } : WELL;
    record.returnedAt = now;
    return [{ kind: 'returned', endpoint, cause }];
  };

  const check = (now: number, endpoint: EndpointKey, record: Record): Decision[] => {
    if (record.check !== 'none' || now < record.nextCheckAt) return [];
    record.check = 'after failure';
    record.nextCheckAt = now + CHECK_AGAIN_MS;
    if (record.use.kind === 'used') record.use = { ...record.use, checkAgain: false };
    return [{ kind: 'check', endpoint }];
  };

  const succeeded = (now: number, endpoint: EndpointKey, record: Record): Decision[] => {
    if (record.use.kind === 'ejected') return bringBack(now, endpoint, record, 'answered');
    if (record.use.kind === 'on trial') record.returnedAt = now;
    record.use = WELL;
    return [];
  };

  const failed = (now: number, endpoint: EndpointKey, record: Record, failure: Failure): Decision[] => {
    const { use } = record;
    switch (use.kind) {
      case 'ejected':
        return [];
      case 'on trial':
        return eject(now, endpoint, record, failure.kind);
      case 'used': {
        const recent = use.failures.filter(({ at }) => now - at < settings.failureWindowMs);
        const failures = [...recent.slice(1 - MAX_FAILURES), failure];
        record.use = { ...use, failures };
        if (areEnough(failures, failure, settings)) return eject(now, endpoint, record, failure.kind);
        if (failure.client !== THIS_NODE) return check(now, endpoint, record);
        record.use = { ...record.use, checkAgain: true };
        return [];
      }
    }
  };

  return {
    ejected,
    isTracked: (endpoint) => records.has(endpoint),
    get active() {
      return records.size > 0;
    },
    observe(now, endpoint, { kind, client }, pools) {
      const known = records.get(endpoint);
      if (kind === 'success') return known ? succeeded(now, endpoint, known) : [];
      const record = recordOf(endpoint, pools);
      return record ? failed(now, endpoint, record, { kind, client, at: now }) : [];
    },
    late(now, endpoint, pools) {
      const record = recordOf(endpoint, pools);
      if (!record || record.use.kind === 'ejected' || record.check !== 'none') return [];
      if (now < record.nextEarlyCheckAt) return [];
      record.check = 'late';
      record.nextEarlyCheckAt = now + CHECK_AGAIN_MS;
      return [{ kind: 'check', endpoint }];
    },
    checked(now, endpoint, result) {
      const record = records.get(endpoint);
      if (!record || record.check === 'none') return [];
      if (record.check === 'late' && result !== 'success') record.nextCheckAt = now + CHECK_AGAIN_MS;
      record.check = 'none';
      if (result === 'success') return succeeded(now, endpoint, record);
      if (result === null) {
        if (record.use.kind === 'ejected') record.use = { kind: 'ejected', until: now + CHECK_AGAIN_MS };
        else if (record.use.kind === 'used') record.use = { ...record.use, checkAgain: true };
        return [];
      }
      if (record.use.kind !== 'ejected')
        return failed(now, endpoint, record, { kind: result, client: THIS_NODE, at: now });
      if (record.lastMs >= settings.maxEjectionMs) return bringBack(now, endpoint, record, 'trial');
      record.lastMs = Math.min(record.lastMs * 2, settings.maxEjectionMs);
      record.use = { kind: 'ejected', until: now + record.lastMs };
      return [];
    },
    forget(endpoint) {
      records.delete(endpoint);
      ejected.delete(endpoint);
    },
    due(now) {
      const decisions: Decision[] = [];
      for (const [endpoint, record] of records) {
        const at = dueAt(record, settings);
        if (at === null || at > now) continue;
        if (record.use.kind === 'ejected') {
          record.check = 'after failure';
          decisions.push({ kind: 'check', endpoint });
        } else if (record.use.kind === 'used' && record.use.checkAgain) {
          decisions.push(...check(now, endpoint, record));
        } else if (isForgettable(now, record, settings)) {
          records.delete(endpoint);
        }
      }
      return decisions;
    },
    get nextDue() {
      let next: number | null = null;
      for (const record of records.values()) {
        const at = dueAt(record, settings);
        if (at !== null && (next === null || at < next)) next = at;
      }
      return next;
    },
  };
}

/** Returns true if the failures, of which one is the latest, are enough for an ejection. */
function areEnough(
  failures: readonly Failure[],
  { kind, client }: Failure,
  settings: EjectionSettings,
): boolean {
  // This node's check was refused; or it was not answered, and a client was refused.
  if (client === THIS_NODE && (kind === 'reset' || failures.some((one) => one.kind === 'reset'))) return true;
  const timeouts = failures.filter((one) => one.kind === 'timeout').length;
  const clients = new Set(failures.map((one) => one.client)).size;
  return clients >= settings.agentClients && timeouts >= settings.agentTimeouts;
}

/** Returns true if an endpoint in use has neither recent failures nor a recent ejection. */
const isForgettable = (now: number, { use, check, ...record }: Record, settings: EjectionSettings): boolean =>
  use.kind === 'used' &&
  check === 'none' &&
  use.failures.every(({ at }) => now - at >= settings.failureWindowMs) &&
  now >= record.nextCheckAt &&
  now >= record.nextEarlyCheckAt &&
  (record.lastMs === 0 || now - record.returnedAt >= settings.forgiveMs);

/** Returns when the policy must look at an endpoint; null: not before its next outcome. */
function dueAt({ use, check, ...record }: Record, settings: EjectionSettings): number | null {
  if (check !== 'none' || use.kind === 'on trial') return null;
  if (use.kind === 'ejected') return use.until;
  if (use.checkAgain) return record.nextCheckAt;
  const lastFailure = use.failures.at(-1)?.at ?? Number.NEGATIVE_INFINITY;
  return Math.max(
    lastFailure + settings.failureWindowMs,
    record.nextCheckAt,
    record.nextEarlyCheckAt,
    record.lastMs === 0 ? Number.NEGATIVE_INFINITY : record.returnedAt + settings.forgiveMs,
  );
}
