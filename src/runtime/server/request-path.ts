import { FairleadError } from '../../lib/errors.ts';
import { hasTooManyParameters } from '../../lib/query-parameters.ts';

export interface RequestPath {
  /** The path's parts between slashes, decoded; a trailing slash yields an empty last part. */
  readonly parts: readonly string[];
  readonly path: string;
  readonly query: URLSearchParams;
}

/**
 * Parses a request's target. Throws FairleadError "BadRequest" if it is not a path or cannot be decoded (RFC 3986,
 * 2.1).
 */
export function parseRequestPath(target: string | undefined): RequestPath {
  if (hasTooManyParameters(target ?? '')) throw requestError('BadRequest', 'too many parameters');
  try {
    const url = new URL(target ?? '/', 'https://node');
    return {
      parts: url.pathname.slice(1).split('/').map(decodeURIComponent),
      path: url.pathname,
      query: url.searchParams,
    };
  } catch (error) {
    // URIError: a bad escape; TypeError: not a URL.
    if (!(error instanceof URIError || error instanceof TypeError)) throw error;
    throw requestError('BadRequest', `malformed path ${JSON.stringify(target)}`);
  }
}

/** Error responses: a metav1.StatusReason and its HTTP status. */
export const STATUS_CODES = {
  BadRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  NotFound: 404,
  MethodNotAllowed: 405,
  Invalid: 422,
  InternalError: 500,
} as const;

export type StatusReason = keyof typeof STATUS_CODES;

export function requestError(reason: StatusReason, message: string): FairleadError {
  return new FairleadError(message, { op: 'answer request', code: reason });
}

/** Returns the reason for the response to an error: its code if that is a reason, else InternalError. */
export function reasonOf(error: unknown): StatusReason {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' && Object.hasOwn(STATUS_CODES, code)
    ? (code as StatusReason)
    : 'InternalError';
}
