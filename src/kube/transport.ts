import { readFileSync } from 'node:fs';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { FairleadError } from '../lib/errors.ts';

/** A request to an API server. `path` begins with "/" and carries the query. */
export interface ApiRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  readonly signal?: AbortSignal;
}

export interface ApiResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: AsyncIterable<Uint8Array>;
}

/** How requests reach an API server: over HTTPS, or straight into one in this process. */
export type Transport = (request: ApiRequest) => Promise<ApiResponse>;

/** Where an API server is and who we are there. PEM texts. */
export interface Credentials {
  /** "https://10.0.0.1:6443" */
  readonly server: string;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly token?: string;
  /** A file that holds the token and changes: service accounts' tokens are renewed (KEP-1205). Read again each minute. */
  readonly tokenFile?: string;
  readonly serverName?: string;
}

const TOKEN_FILE_MS = 60_000;
/** A server that has not begun to answer by then is taken for dead; watches answer at once and then last. */
const ANSWER_MS = 30_000;

/** A transport over HTTP or HTTPS with kept connections. */
export function httpTransport(
  credentials: Credentials,
  now: () => number = Date.now,
): Transport & { close(): void } {
  const base = URL.parse(credentials.server);
  if (!base || !['http:', 'https:'].includes(base.protocol)) {
    throw new FairleadError(`${JSON.stringify(credentials.server)} is not an address of an API server`, {
      op: 'connect to API server',
      code: 'bad-config',
      hint: 'a kubeconfig names it as server: https://HOST:PORT',
    });
  }
  const secure = base.protocol === 'https:';
  const tls = {
    ...(credentials.ca === undefined ? {} : { ca: credentials.ca }),
    ...(credentials.cert === undefined ? {} : { cert: credentials.cert }),
    ...(credentials.key === undefined ? {} : { key: credentials.key }),
    ...(credentials.serverName === undefined ? {} : { servername: credentials.serverName }),
  };
  const agent = secure
    ? new HttpsAgent({ keepAlive: true, maxCachedSessions: 100, ...tls })
    : new HttpAgent({ keepAlive: true });
  const host = base.hostname.replace(/^\[|\]$/g, '');
  const port = base.port || (secure ? '443' : '80');
  const prefix = base.pathname.replace(/\/$/, '');
  let token = { text: credentials.token, readAt: Number.NEGATIVE_INFINITY };
  const currentToken = () => {
    if (credentials.tokenFile !== undefined && now() - token.readAt > TOKEN_FILE_MS) {
      token = { text: readFileSync(credentials.tokenFile, 'utf8').trim(), readAt: now() };
    }
    return token.text;
  };

  const send = (request: ApiRequest): Promise<ApiResponse> =>
    new Promise((resolve, reject) => {
      const bearer = currentToken();
      const outgoing = (secure ? httpsRequest : httpRequest)(
        {
          agent,
          host,
          port,
          method: request.method,
          path: prefix + request.path,
          headers: {
            ...request.headers,
            ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
            ...(request.body === undefined ? {} : { 'content-length': Buffer.byteLength(request.body) }),
          },
          ...(request.signal ? { signal: request.signal } : {}),
        },
        (response: IncomingMessage) => {
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers as Record<string, string | undefined>,
            body: response,
          });
        },
      );
      const late = setTimeout(() => {
        outgoing.destroy(
          new FairleadError(`${credentials.server} does not answer`, {
            op: 'connect to API server',
            code: 'ETIMEDOUT',
            object: `${request.method} ${request.path.split('?')[0]}`,
          }),
        );
      }, ANSWER_MS);
      outgoing.on('response', () => clearTimeout(late));
      outgoing.on('close', () => clearTimeout(late));
      outgoing.on('error', reject);
      outgoing.end(request.body);
    });
  return Object.assign(send, { close: () => agent.destroy() });
}
