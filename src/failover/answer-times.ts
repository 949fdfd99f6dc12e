import type { Clock } from '../lib/clock.ts';
import type { EndpointKey } from '../service/endpoint-key.ts';

/**
 * Which endpoints have lately answered first packets fast. Only these can be given up early: an endpoint that does not
 * answer and one that is far away look the same until the far one answers.
 */
export interface AnswerTimes {
  /** Records an answer to a client's first packet. */
  answered(endpoint: EndpointKey, isFast: boolean): void;
  /** The endpoint is known to be slow now. */
  forget(endpoint: EndpointKey): void;
  isFast(endpoint: EndpointKey): boolean;
}

/** A fast answer is worth one point, up to this number; a slow one, which a pause of the machine may cause, costs some. */
const MAX_POINTS = 8;
const SLOW_PENALTY = 4;
/** A single fast answer may be a slow one whose events this process read together. */
const MIN_POINTS = 2;
const VALID_MS = 600_000;
/** The maximum number of endpoints; those that answered longest ago are dropped first. */
const MAX_ENDPOINTS = 20_000;

export function createAnswerTimes(clock: Clock, maxEndpoints: number = MAX_ENDPOINTS): AnswerTimes {
  /** In the order of their last answers. */
  const known = new Map<EndpointKey, { readonly points: number; readonly at: number }>();

  return {
    answered(endpoint, isFast) {
      const before = known.get(endpoint)?.points ?? 0;
      const points = Math.min(before + (isFast ? 1 : -SLOW_PENALTY), MAX_POINTS);
      known.delete(endpoint);
      if (points <= 0) return;
      known.set(endpoint, { points, at: clock.now() });
      const [oldest] = known.keys();
      if (known.size > maxEndpoints && oldest !== undefined) known.delete(oldest);
    },
    forget: (endpoint) => known.delete(endpoint),
    isFast(endpoint) {
      const found = known.get(endpoint);
      return found !== undefined && found.points >= MIN_POINTS && clock.now() - found.at < VALID_MS;
    },
  };
}
