import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { checkedTarget, type MayDial } from '../../kube/dial-check.ts';
import type { ProxyVariables } from '../../kube/proxy-environment.ts';
import { createTunnelAgent, proxyOf } from '../../kube/proxy-tunnel.ts';
import { trustPublicAuthorities } from '../../kube/public-authorities.ts';

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
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  // The reader of the body gets them; without one they have no effect.
  request.on('error', () => {});
  response.on('error', () => {});
  return response;
}
