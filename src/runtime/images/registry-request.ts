import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { checkedTarget, type MayDial } from '../../kube/dial-check.ts';
import type { ProxyVariables } from '../../kube/proxy-environment.ts';
import { createTunnelAgent, proxyOf } from '../../kube/proxy-tunnel.ts';
import { trustPublicAuthorities } from '../../kube/public-authorities.ts';
import { FairleadError } from '../../lib/errors.ts';
import { guardOf, type RegistryEndpoint, targetOf } from './registry-endpoint.ts';

/** One leads to a content network; a few more are allowed. */
const MAX_REDIRECTS = 5;
/** Responses of status 1xx before the response: no registry sends any. */
const MAX_INTERIM = 16;
const REDIRECTS = [301, 302, 303, 307, 308];

export interface ResponseOptions {
  readonly headers: Readonly<Record<string, string>>;
  /** Which addresses may be dialed. A proxy, which the user names, is dialed in any case. */
  readonly mayDial: MayDial;
  /** The proxies of the environment; null: none. */
  readonly proxies: ProxyVariables | null;
  readonly signal: AbortSignal | null;
}

/**
 * Sends a GET request and returns the response, whose body is not read yet; redirects are not followed. Throws FairleadError
 * "EACCES" for an address that may not be dialed.
 */
export async function openResponse(
  url: URL,
  { headers, mayDial, proxies, signal }: ResponseOptions,
): Promise<IncomingMessage> {
  const isSecure = url.protocol === 'https:';
  if (isSecure) trustPublicAuthorities();
  // Also behind a proxy, which resolves names itself: an address need not be resolved.
  const { lookup } = checkedTarget(url.hostname.replace(/^\[|\]$/g, ''), mayDial);
  const proxy = proxyOf(proxies === null ? {} : { proxyVariables: proxies }, url);
  const request = (isSecure ? httpsRequest : httpRequest)(url, {
    headers: { 'user-agent': 'fairlead', ...headers },
    agent: proxy === null ? false : createTunnelAgent(proxy, isSecure, {}),
    ...(proxy === null && lookup ? { lookup } : {}),
    ...(signal ? { signal } : {}),
  });
  let interim = 0;
  request.on('information', () => {
    if (++interim > MAX_INTERIM) request.destroy(badResponse(`more than ${MAX_INTERIM} interim responses`));
  });
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  // The reader of the body gets them; without one they have no effect.
  request.on('error', () => {});
  response.on('error', () => {});
  return response;
}

/**
 * Requests a document of a registry, through redirects; authorization goes only to the origin of the first request. `onTarget`
 * is told each further address. Throws FairleadError "bad-image" for redirects that may not be followed, and as `openResponse`.
 */
export async function followRedirects(
  first: URL,
  options: Omit<ResponseOptions, 'mayDial'> & { readonly endpoint: RegistryEndpoint },
  onTarget: (url: URL) => void,
): Promise<IncomingMessage> {
  const { endpoint, headers, proxies, signal } = options;
  const { authorization: _, ...others } = headers;
  let url = first;
  for (let redirects = 0; ; redirects++) {
    const response = await openResponse(url, {
      headers: url.origin === first.origin ? headers : others,
      mayDial: guardOf(endpoint, url),
      ...{ proxies, signal },
    });
    const { location } = response.headers;
    if (location === undefined || !REDIRECTS.includes(response.statusCode ?? 0)) return response;
    response.destroy();
    if (redirects === MAX_REDIRECTS) throw badRedirect(`sends more than ${MAX_REDIRECTS} redirects`);
    const next = targetOf(endpoint, location, url);
    if (next === null)
      throw badRedirect(`names an unsupported address: ${JSON.stringify(location.slice(0, 100))}`);
    url = next;
    onTarget(url);
  }
}

const badResponse = (message: string): FairleadError =>
  new FairleadError(message, { op: 'request document', code: 'EPROTO' });

const badRedirect = (message: string): FairleadError =>
  new FairleadError(message, { op: 'follow redirects', code: 'bad-image' });
