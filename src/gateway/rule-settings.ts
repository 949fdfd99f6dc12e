import { parseGoDuration } from '../lib/go-duration.ts';
import { cookieName } from './filters.ts';
import { integer, list, type Raw, record, show, text } from './raw.ts';
import type { CookieAffinity, Forward } from './route-map.ts';
import { isProblem, type RuleProblem, unsupported } from './rule-problem.ts';

/** Timeouts, retries and session persistence of a rule. */
export type RuleSettings = Pick<Forward, 'timeouts' | 'retry' | 'affinity'>;

const DURATION = /^(?:[0-9]{1,5}(?:h|ms|m|s)){1,4}$/;
const MAX_ATTEMPTS = 100;
const STANDARD_ATTEMPTS = 2;
const STANDARD_BACKOFF_MS = 25;
const STANDARD_COOKIE = 'fairlead-session';
const MAX_CODES = 64;

export function readRuleSettings(rule: Raw): RuleSettings | RuleProblem {
  const timeouts = record(rule['timeouts']);
  const request = readDuration(timeouts['request'], 'timeouts.request');
  if (typeof request === 'object' && request !== null) return request;
  const backend = readDuration(timeouts['backendRequest'], 'timeouts.backendRequest');
  if (typeof backend === 'object' && backend !== null) return backend;
  if (request !== null && request > 0 && backend !== null && backend > request)
    return unsupported('timeouts.backendRequest', 'is longer than timeouts.request');
  const retry = readRetry(rule['retry']);
  if (retry !== null && isProblem(retry)) return retry;
  const affinity = readAffinity(rule['sessionPersistence']);
  if (affinity !== null && isProblem(affinity)) return affinity;
  // Zero means no limit.
  return { timeouts: { request: request || null, backend: backend || null, connect: null }, retry, affinity };
}

/** Returns a duration of the Gateway API (GEP-2257) in milliseconds; null: there is none. */
function readDuration(value: unknown, field: string): number | null | RuleProblem {
  if (value === undefined || value === null) return null;
  const duration = DURATION.test(text(value)) ? parseGoDuration(text(value)) : null;
  return typeof duration === 'number'
    ? duration
    : unsupported(field, `${show(value)} is not a duration such as 1m30s`);
}

function readRetry(value: unknown): Forward['retry'] | RuleProblem {
  if (value === undefined || value === null) return null;
  const retry = record(value);
  const attempts =
    retry['attempts'] === undefined ? STANDARD_ATTEMPTS : integer(retry['attempts'], 1, MAX_ATTEMPTS);
  if (attempts === null)
    return unsupported(
      'retry.attempts',
      `${show(retry['attempts'])} is not a number from 1 to ${MAX_ATTEMPTS}`,
    );
  const backoff = readDuration(retry['backoff'], 'retry.backoff');
  if (typeof backoff === 'object' && backoff !== null) return backoff;
  const statuses: number[] = [];
  for (const code of list(retry['codes']).slice(0, MAX_CODES)) {
    const status = integer(code, 400, 599);
    if (status === null) return unsupported('retry.codes', `${show(code)} is not a status from 400 to 599`);
    if (!statuses.includes(status)) statuses.push(status);
  }
  return { attempts, statuses: statuses.sort((a, b) => a - b), backoffMs: backoff ?? STANDARD_BACKOFF_MS };
}

function readAffinity(value: unknown): CookieAffinity | null | RuleProblem {
  if (value === undefined || value === null) return null;
  const session = record(value);
  const type = session['type'] ?? 'Cookie';
  if (type !== 'Cookie')
    return unsupported('sessionPersistence.type', `${show(type)} is not supported: use Cookie`);
  const given = session['sessionName'];
  const cookie = given === undefined || given === null ? STANDARD_COOKIE : cookieName(given);
  if (cookie === null)
    return unsupported('sessionPersistence.sessionName', `${show(given)} is not the name of a cookie`);
  if (session['idleTimeout'] !== undefined && session['idleTimeout'] !== null)
    return unsupported('sessionPersistence.idleTimeout', 'is not supported: use absoluteTimeout');
  const timeout = readDuration(session['absoluteTimeout'], 'sessionPersistence.absoluteTimeout');
  if (typeof timeout === 'object' && timeout !== null) return timeout;
  const lifetime = record(session['cookieConfig'])['lifetimeType'] ?? 'Session';
  if (lifetime !== 'Session' && lifetime !== 'Permanent')
    return unsupported(
      'sessionPersistence.cookieConfig.lifetimeType',
      `${show(lifetime)} is neither Session nor Permanent`,
    );
  if (lifetime === 'Permanent' && !timeout)
    return unsupported('sessionPersistence.absoluteTimeout', 'is needed with lifetimeType Permanent');
  if (lifetime === 'Session' && timeout)
    return unsupported(
      'sessionPersistence.absoluteTimeout',
      'is not supported with lifetimeType Session: use Permanent',
    );
  return { cookie, lifetime: timeout ? Math.max(1, Math.floor(timeout / 1000)) : null };
}
