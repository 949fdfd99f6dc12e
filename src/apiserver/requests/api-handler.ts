import { messageOf } from '../../lib/errors.ts';
import { authorizationForbidden } from '../authorization/forbidden.ts';
import { nonResource } from '../routes/non-resource.ts';
import { routeResource } from '../routes/route-resource.ts';
import type { ApiServices } from '../services.ts';
import { badRequest, StatusError } from '../status-error.ts';
import { authorizationAttributes } from './authorization-attributes.ts';
import type { IncomingRequest, OutgoingResponse } from './request.ts';
import { createRequestContext, type RequestContext } from './request-context.ts';
import { askedTimeout, within } from './request-timeout.ts';
import { statusResponse, withWarnings } from './responses.ts';

/** The response to an unknown path outside the API, with Go's text. */
const PAGE_NOT_FOUND: OutgoingResponse = {
  status: 404,
  headers: { 'content-type': 'text/plain; charset=utf-8', 'x-content-type-options': 'nosniff' },
  body: '404 page not found\n',
};

export type Handler = (request: IncomingRequest) => Promise<OutgoingResponse>;

/**
 * Handles every request of an authenticated (or anonymous) user: impersonation, authorization, then the route's
 * handler, which runs admission. Never throws: refusals become Status objects.
 */
export function createApiHandler(services: ApiServices): Handler {
  return async (request) => {
    let context: RequestContext | null = null;
    let response: OutgoingResponse;
    try {
      context = createRequestContext(request);
      if (!context) throw badRequest(`the path ${JSON.stringify(request.url)} has a malformed escape`);
      const timeout = askedTimeout(context.info, context.query);
      context = await impersonated(services, context);
      await authorize(services, context);
      const answer = route(services, context);
      response = await (timeout === null ? answer : within(services.clock, timeout, answer));
    } catch (error) {
      response = statusResponse(services.schema, context, asStatus(services, request, error));
    }
    const status = response === 'upgraded' ? 101 : response.status;
    services.metrics.count(verbLabel(context, request), context?.info.resource ?? '', status);
    return context && response !== 'upgraded' ? withWarnings(context, response) : response;
  };
}

async function route(services: ApiServices, context: RequestContext): Promise<OutgoingResponse> {
  return (
    (await services.aggregator.handle(context)) ??
    (await nonResource(services, context)) ??
    (await furtherPath(services, context)) ??
    (await routeResource(context, services)) ??
    (context.info.isResourceRequest ? null : PAGE_NOT_FOUND) ??
    statusResponse(
      services.schema,
      context,
      new StatusError(404, 'NotFound', 'the server could not find the requested resource', {}),
    )
  );
}

function furtherPath({ furtherPaths }: ApiServices, { info, query, request }: RequestContext) {
  if (info.isResourceRequest) return null;
  return furtherPaths({
    method: request.method,
    path: info.path,
    query,
    body: () => request.body(),
    signal: request.signal,
  });
}

function verbLabel(context: RequestContext | null, request: IncomingRequest): string {
  const verb = context?.info.verb;
  return verb === 'list' || verb === 'watch' ? verb.toUpperCase() : request.method;
}

function asStatus(services: ApiServices, request: IncomingRequest, error: unknown): StatusError {
  if (error instanceof StatusError) return error;
  services.logger.error({ method: request.method, url: request.url, err: error }, 'request failed');
  return new StatusError(500, 'InternalError', `Internal error occurred: ${messageOf(error)}`);
}

/** Returns the context with the user that the request impersonates. */
async function impersonated(services: ApiServices, context: RequestContext): Promise<RequestContext> {
  const { headers } = context.request;
  if (!Object.keys(headers).some((name) => name.startsWith('impersonate-'))) return context;
  if (!services.impersonator) {
    throw new StatusError(403, 'Forbidden', 'this server does not support impersonation', {});
  }
  return {
    ...context,
    user: await services.impersonator.impersonate(context.user, headers, authorizationAttributes(context)),
  };
}

/** Throws StatusError 403 if the user may not make this request. */
async function authorize(services: ApiServices, context: RequestContext): Promise<void> {
  if (context.request.internal && context.user === context.request.user) return;
  const attributes = authorizationAttributes(context);
  const { verdict, reason } = await services.authorizer.authorize(attributes);
  if (verdict === 'allow') return;
  throw authorizationForbidden(attributes, reason);
}
