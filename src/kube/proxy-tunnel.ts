import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Duplex } from 'node:stream';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { hostPort } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { environmentProxy, type ProxyVariables } from './proxy-environment.ts';
import { proxyRefusal } from './proxy-refusal.ts';
import { trustPublicAuthorities } from './public-authorities.ts';
import { openSocksTunnel } from './socks-tunnel.ts';

/** Settings of the connections to the server, as those of Node.js's agents. */
type AgentOptions = NonNullable<ConstructorParameters<typeof HttpsAgent>[0]>;

/** Returns why a URL cannot be used as `proxy-url`; null: it can. */
export function proxyProblem(url: string): string | null {
  const protocol = URL.parse(url)?.protocol;
  if (protocol === undefined) return `${JSON.stringify(url)} is not a URL`;
  return ['http:', 'https:', 'socks5:', 'socks5h:'].includes(protocol)
    ? null
    : `${protocol.replace(':', '')} proxies are not supported; use http, https or socks5`;
}

/**
 * Returns the URL of the proxy through which connections to a server pass; null: none. Throws FairleadError for a proxy of the
 * environment that is not supported.
 */
export function proxyOf(
  { proxyUrl, proxyVariables }: { readonly proxyUrl?: string; readonly proxyVariables?: ProxyVariables },
  server: URL,
): string | null {
  if (proxyUrl !== undefined) return proxyUrl;
  const proxy = proxyVariables ? environmentProxy(proxyVariables, server) : null;
  const problem = proxy === null ? null : proxyProblem(proxy);
  if (problem === null) return proxy;
  const name = server.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  throw new FairleadError(`${name}: ${problem}`, {
    op: 'connect to API server',
    code: 'bad-config',
    hint: `set ${name} to the URL of a proxy, or name ${server.hostname} in NO_PROXY`,
  });
}

/**
 * Creates an agent whose connections pass a SOCKS proxy, or an HTTP proxy by CONNECT, so that the proxy does not see what
 * is sent to a server with TLS. Name and password of the proxy are those in its URL.
 */
export function createTunnelAgent(proxy: string, isSecure: boolean, options: AgentOptions): HttpAgent {
  const agent = isSecure ? new HttpsAgent(options) : new HttpAgent(options);
  agent.createConnection = (connection, done) => {
    const { host, port } = connection;
    openTunnel(new URL(proxy), host ?? '', Number(port)).then(
      (socket) => {
        if (!isSecure) return done?.(null, socket);
        const secured = connectTls({ ...connection, socket } as ConnectionOptions, () => {
          secured.off('error', failed);
          done?.(null, secured);
        });
        const failed = (error: Error) => done?.(error, secured);
        secured.once('error', failed);
      },
      // Node.js ignores the stream of a failed connection.
      (error: Error) => done?.(error, undefined as unknown as Duplex),
    );
    return undefined;
  };
  return agent;
}

/** Asks a proxy for a connection to a host. */
function openTunnel(proxy: URL, host: string, port: number): Promise<Duplex> {
  if (proxy.protocol.startsWith('socks5')) return openSocksTunnel(proxy, host, port);
  const target = hostPort({ ip: host, port });
  if (proxy.protocol === 'https:') trustPublicAuthorities();
  return new Promise((resolve, reject) => {
    const { username, password } = proxy;
    const name = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
    const authorization =
      username === '' ? {} : { 'proxy-authorization': `Basic ${Buffer.from(name).toString('base64')}` };
    const request = (proxy.protocol === 'https:' ? httpsRequest : httpRequest)({
      host: proxy.hostname.replace(/^\[|\]$/g, ''),
      port: proxy.port || (proxy.protocol === 'https:' ? 443 : 80),
      method: 'CONNECT',
      path: target,
      headers: { host: target, ...authorization },
      agent: false,
    });
    request.once('connect', ({ statusCode, statusMessage }, socket) => {
      if (statusCode === 200) return resolve(socket);
      socket.destroy();
      reject(proxyRefusal(proxy, target, `${statusCode} ${statusMessage}`));
    });
    request.once('error', reject);
    request.end();
  });
}
