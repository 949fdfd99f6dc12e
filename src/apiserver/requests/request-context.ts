import { hasTooManyParameters } from '../../lib/query-parameters.ts';
import type { User } from '../authentication/user.ts';
import { badRequest } from '../status-error.ts';
import type { IncomingRequest } from './request.ts';
import { type RequestInfo, readRequestInfo } from './request-info.ts';

/** The state of one request, shared by filters and handlers. */
export interface RequestContext {
  readonly request: IncomingRequest;
  readonly info: RequestInfo;
  readonly query: URLSearchParams;
  /** The acting user: the impersonated user, if there is one. */
  readonly user: User;
  readonly signal: AbortSignal;
  /** Texts for `Warning:` headers. */
  readonly warnings: string[];
}

/** A request for an object, or for a collection. */
export interface ObjectRequestContext extends RequestContext {
  /** Namespace of the stored objects: that of the path, or "" for cluster-wide resources. */
  readonly namespace: string;
  /** "" for collections. */
  readonly name: string;
}

/** Returns null if the path has a malformed escape. Throws StatusError 400 for a query that is too long. */
export function createRequestContext(request: IncomingRequest): RequestContext | null {
  const at = request.url.indexOf('?');
  const path = at < 0 ? request.url : request.url.slice(0, at);
  if (hasTooManyParameters(request.url)) throw badRequest('number of URL query parameters exceeded limit');
  const query = new URLSearchParams(at < 0 ? '' : request.url.slice(at + 1));
  const info = readRequestInfo(request.method, path, query);
  return info && { request, info, query, user: request.user, signal: request.signal, warnings: [] };
}

/** As upstream, which drops further ones: of all warnings of a response, in characters. */
const MAX_WARNINGS = 4096;

/** Adds a warning unless it was added before, or there are too many. */
export function warn({ warnings }: RequestContext, text: string): void {
  const length = warnings.reduce((sum, one) => sum + one.length, 0);
  if (length < MAX_WARNINGS && !warnings.includes(text)) warnings.push(text);
}
