import type { IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import type { ServiceResolver } from '../admission/webhooks/webhook-client.ts';
import type { User } from '../authentication/authenticator.ts';
import type { RemoteApi } from './api-service.ts';

export interface RemoteRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Whom the other server takes for the user. */
  readonly user: User;
}

/** Opens requests to aggregated API servers, as their front proxy. */
export interface RemoteClient {
  /** The caller writes the body and ends it. Throws Error when the Service has no address to ask. */
  open(api: RemoteApi, request: RemoteRequest): ReturnType<typeof httpsRequest>;
  /** GET as JSON. Throws Error with the reason. */
  read(api: RemoteApi, path: string, user: User, timeoutMs: number): Promise<unknown>;
  close(): void;
}

/** Longer discovery answers are refused. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

/** `identity`: the certificate by which other servers know this front proxy. PEM. */
export function createRemoteClient(
  resolve: ServiceResolver,
  identity: { readonly cert: string; readonly key: string },
): RemoteClient {
  const agent = new Agent({ keepAlive: true, maxSockets: 1000 });
  const open: RemoteClient['open'] = (api, { method, path, headers, user }) => {
    const { namespace, name, port } = api.service;
    const address = resolve(namespace, name, port);
    const servername = `${name}.${namespace}.svc`;
    return httpsRequest({
      agent,
      method,
      host: address.host,
      port: address.port,
      servername,
      path,
      headers: { ...headers, ...userHeaders(user), host: servername },
      cert: identity.cert,
      key: identity.key,
      ...(api.authority === null
        ? { rejectUnauthorized: false }
        : api.authority === ''
          ? {}
          : { ca: api.authority }),
    });
  };
  return {
    open,
    async read(api, path, user, timeoutMs) {
      const headers = { accept: 'application/json' };
      const response = await new Promise<IncomingMessage>((done, fail) => {
        const outgoing = open(api, { method: 'GET', path, headers, user });
        outgoing.setTimeout(timeoutMs, () => outgoing.destroy(new Error('context deadline exceeded')));
        outgoing.on('response', done).on('error', fail).end();
      });
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of response as AsyncIterable<Buffer>) {
        size += chunk.length;
        if (size > MAX_ANSWER_BYTES) throw new Error(`the answer is longer than ${MAX_ANSWER_BYTES} bytes`);
        chunks.push(chunk);
      }
      const status = response.statusCode ?? 0;
      if (status < 200 || status > 299) throw new Error(`bad status from ${path}: ${status}`);
      return JSON.parse(Buffer.concat(chunks).toString('utf8'));
    },
    close: () => agent.destroy(),
  };
}

/** The user as a front proxy names it (extension-apiserver-authentication says under which headers). */
function userHeaders({ name, uid, groups, extra = {} }: User): Record<string, string | string[]> {
  return {
    'x-remote-user': name,
    ...(uid ? { 'x-remote-uid': uid } : {}),
    'x-remote-group': [...groups],
    ...Object.fromEntries(
      Object.entries(extra).map(([key, values]) => [
        `x-remote-extra-${encodeURIComponent(key).toLowerCase()}`,
        [...values],
      ]),
    ),
  };
}
