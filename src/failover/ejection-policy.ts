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

interface Record {
  /** The latest failures while suspect. */
  failures: Failure[];
  /** The end of the ejection; null: in use. */
  until: number | null;
  /** Duration of the last ejection; 0: none. */
  lastMs: number;
  /** The time of its last return. */
  returnedAt: number;
  /** In use without having answered. */
  onTrial: boolean;
  checking: boolean;
  /** No check before this time, so that a client whose failures a check contradicts cannot cause a check for each. */
  nextCheckAt: number;
  /** The check in progress began with a late answer: only if it fails, `nextCheckAt` applies to failures after it. */
  checkedEarly: boolean;
  /** No check for a late answer before this time. */
  nextEarlyCheckAt: number;
  /** The last check of a suspect was not answered: check again at `nextCheckAt`. */
  checkAgain: boolean;
  /** The pools of the Service through which it failed last. */
  pools: readonly (readonly EndpointKey[])[];
}

interface PolicyState {
  readonly settings: EjectionSettings;
  readonly records: Map<EndpointKey, Record>;
  readonly ejected: Set<EndpointKey>;
}

/** The node's own check, counted as a client. */
const THIS_NODE = 'this node';
const CHECK_AGAIN_MS = 1000;
/** The maximum number of tracked endpoints; further failing ones are ignored. */
const MAX_TRACKED = 10_000;
const MAX_FAILURES = 16;

export function createEjectionPolicy(settings: EjectionSettings = EJECTION_RULES): EjectionPolicy {
  const state: PolicyState = { settings, records: new Map(), ejected: new Set() };
  const { records, ejected } = state;

  return {
    ejected,
    isTracked: (endpoint) => records.has(endpoint),
    get active() {
      return records.size > 0;
    },
    observe(now, endpoint, { kind, client }, pools) {
      const known = records.get(endpoint);
      if (kind === 'success') return known ? succeeded(state, now, endpoint, known) : [];
      const record = recordOf(state, endpoint, pools);
      return record ? failed(state, now, endpoint, record, { kind, client, at: now }) : [];
    },
    late(now, endpoint, pools) {
      const record = recordOf(state, endpoint, pools);
      if (!record || record.until !== null || record.checking || now < record.nextEarlyCheckAt) return [];
      Object.assign(record, { checking: true, checkedEarly: true, nextEarlyCheckAt: now + CHECK_AGAIN_MS });
      return [{ kind: 'check', endpoint }];
    },
    checked(now, endpoint, result) {
      const record = records.get(endpoint);
      if (!record?.checking) return [];
      if (record.checkedEarly && result !== 'success') record.nextCheckAt = now + CHECK_AGAIN_MS;
      Object.assign(record, { checking: false, checkedEarly: false });
      if (result === 'success') return succeeded(state, now, endpoint, record);
      if (result === null) {
        if (record.until === null) record.checkAgain = true;
        else record.until = now + CHECK_AGAIN_MS;
        return [];
      }
      if (record.until === null) {
        return failed(state, now, endpoint, record, { kind: result, client: THIS_NODE, at: now });
      }
      if (record.lastMs >= settings.maxEjectionMs) return bringBack(state, now, endpoint, record, 'trial');
      record.lastMs = Math.min(record.lastMs * 2, settings.maxEjectionMs);
      record.until = now + record.lastMs;
      return [];
    },
    forget(endpoint) {
      records.delete(endpoint);
      ejected.delete(endpoint);
    },
    due(now) {
      const decisions: Decision[] = [];
      for (const [endpoint, record] of records) {
        const at = dueAt(state, record);
        if (at === null || at > now) continue;
        if (record.until !== null) {
          record.checking = true;
          decisions.push({ kind: 'check', endpoint });
        } else if (record.checkAgain) {
          decisions.push(...check(now, endpoint, record));
        } else if (isForgettable(state, now, record)) {
          records.delete(endpoint);
        }
      }
      return decisions;
    },
    get nextDue() {
      let next: number | null = null;
      for (const record of records.values()) {
        const at = dueAt(state, record);
        if (at !== null && (next === null || at < next)) next = at;
      }
      return next;
    },
  };
}

const hasRoom = (state: PolicyState, endpoint: EndpointKey, { pools }: Record): boolean =>
  pools.some((pool) => {
    if (!pool.includes(endpoint)) return false;
    const out = pool.filter((key) => state.ejected.has(key)).length;
    return out < maxEjected(pool.length);
  });

/** Returns an endpoint's record, new if there is none; null: too many endpoints are tracked. */
const recordOf = (state: PolicyState, endpoint: EndpointKey, pools: Record['pools']): Record | null => {
  const known = state.records.get(endpoint);
  if (known) return Object.assign(known, { pools });
  if (state.records.size >= MAX_TRACKED) return null;
  const record: Record = {
    failures: [],
    until: null,
    lastMs: 0,
    returnedAt: 0,
    onTrial: false,
    checking: false,
    nextCheckAt: 0,
    checkedEarly: false,
    nextEarlyCheckAt: 0,
    checkAgain: false,
    pools,
  };
  state.records.set(endpoint, record);
  return record;
};

const eject = (
  state: PolicyState,
  now: number,
  endpoint: EndpointKey,
  record: Record,
  cause: Cause,
): Decision[] => {
  if (!hasRoom(state, endpoint, record)) return [];
  const forgiven = !record.onTrial && now - record.returnedAt >= state.settings.forgiveMs;
  const forMs =
    record.lastMs === 0 || forgiven
      ? state.settings.firstEjectionMs
      : Math.min(record.lastMs * 2, state.settings.maxEjectionMs);
  Object.assign(record, { failures: [], checkAgain: false, onTrial: false });
  Object.assign(record, { until: now + forMs, lastMs: forMs });
  state.ejected.add(endpoint);
  return [{ kind: 'ejected', endpoint, cause, forMs }];
};

const bringBack = (
  state: PolicyState,
  now: number,
  endpoint: EndpointKey,
  record: Record,
  cause: 'answered' | 'trial',
): Decision[] => {
  state.ejected.delete(endpoint);
  Object.assign(record, { failures: [], until: null, returnedAt: now, onTrial: cause === 'trial' });
  return [{ kind: 'returned', endpoint, cause }];
};

const check = (now: number, endpoint: EndpointKey, record: Record): Decision[] => {
  if (record.checking || now < record.nextCheckAt) return [];
  Object.assign(record, { checking: true, checkAgain: false, nextCheckAt: now + CHECK_AGAIN_MS });
  return [{ kind: 'check', endpoint }];
};

const succeeded = (state: PolicyState, now: number, endpoint: EndpointKey, record: Record): Decision[] => {
  if (record.until !== null) return bringBack(state, now, endpoint, record, 'answered');
  Object.assign(record, { failures: [], checkAgain: false });
  if (record.onTrial) Object.assign(record, { onTrial: false, returnedAt: now });
  return [];
};

const failed = (
  state: PolicyState,
  now: number,
  endpoint: EndpointKey,
  record: Record,
  failure: Failure,
): Decision[] => {
  if (record.until !== null) return [];
  record.failures = record.failures
    .filter(({ at }) => now - at < state.settings.failureWindowMs)
    .slice(1 - MAX_FAILURES);
  record.failures.push(failure);
  const refused = failure.kind === 'reset' && failure.client === THIS_NODE;
  const timeouts = record.failures.filter(({ kind }) => kind === 'timeout');
  const clients = new Set(record.failures.map(({ client }) => client)).size;
  const enough =
    refused ||
    record.onTrial ||
    (clients >= state.settings.agentClients && timeouts.length >= state.settings.agentTimeouts) ||
    // A client was refused, and this node's check was not answered.
    (failure.client === THIS_NODE && record.failures.some(({ kind }) => kind === 'reset'));
  if (enough) return eject(state, now, endpoint, record, failure.kind);
  if (failure.client !== THIS_NODE) return check(now, endpoint, record);
  record.checkAgain = true;
  return [];
};

/** Returns true if an endpoint in use has neither recent failures nor a recent ejection. */
const isForgettable = (state: PolicyState, now: number, record: Record): boolean =>
  record.until === null &&
  !record.checking &&
  !record.onTrial &&
  record.failures.every(({ at }) => now - at >= state.settings.failureWindowMs) &&
  now >= record.nextCheckAt &&
  now >= record.nextEarlyCheckAt &&
  (record.lastMs === 0 || now - record.returnedAt >= state.settings.forgiveMs);

const dueAt = (state: PolicyState, record: Record): number | null => {
  if (record.until !== null) return record.checking ? null : record.until;
  if (record.checking || record.onTrial) return null;
  if (record.checkAgain) return record.nextCheckAt;
  const lastFailure = record.failures.at(-1)?.at ?? Number.NEGATIVE_INFINITY;
  return Math.max(
    lastFailure + state.settings.failureWindowMs,
    record.nextCheckAt,
    record.nextEarlyCheckAt,
    record.lastMs === 0 ? Number.NEGATIVE_INFINITY : record.returnedAt + state.settings.forgiveMs,
  );
};
