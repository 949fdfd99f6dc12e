import type { Clock } from '../../lib/clock.ts';
import { parseGoDuration } from '../../lib/go-duration.ts';
import { badRequest, StatusError } from '../status-error.ts';
import type { RequestInfo } from './request-info.ts';

/** Upstream's --request-timeout. */
const MAX_MS = 60_000;
/** Requests that last as long as the client wants. */
const UNLIMITED = new Set(['attach', 'exec', 'log', 'portforward', 'proxy']);

/**
 * Returns the milliseconds in which the query asks for an answer (`timeout`, in Go's notation); null: it does not, or the
 * request may last long. Throws StatusError 400.
 */
export function askedTimeout(info: RequestInfo, query: URLSearchParams): number | null {
  const text = query.get('timeout');
  if (!text || info.verb === 'watch' || UNLIMITED.has(info.subresource)) return null;
  const ms = parseGoDuration(text);
  if (typeof ms !== 'number')
    throw badRequest(`invalid timeout specified in the request URL - ${ms.problem}`);
  return ms > 0 ? Math.min(ms, MAX_MS) : null;
}

/** Waits for an answer. Throws StatusError 504 after the timeout; what was asked for may happen nevertheless. */
export async function within<T>(clock: Clock, ms: number, answer: Promise<T>): Promise<T> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(ms, () => {
      const message = 'Timeout: request did not complete within the allotted timeout';
      reject(new StatusError(504, 'Timeout', message, {}));
    });
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    cancel();
  }
}
