import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { checkedTarget, type MayDial } from '../../kube/dial-check.ts';
import { trustPublicAuthorities } from '../../kube/public-authorities.ts';
import type { User } from '../authentication/user.ts';
import { sendTwice, type Through } from '../kept-connection.ts';
import type { ServiceResolver } from '../service-resolver.ts';
import type { RemoteApi } from './api-service.ts';

export interface RemoteRequest {
  readonly method: string;
  /** Path with its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The user as whom the other server handles the request. */
  readonly user: User;
}

/** Opens requests to aggregated API servers, as their front proxy. */
export interface RemoteClient {
  /** Opens a request; the caller writes the body and ends it. Throws Error if the Service has no usable address. */
  open(api: RemoteApi, request: RemoteRequest, through: Through): ClientRequest;
  /** Sends a GET and parses the JSON response. Throws Error with the reason. */
  read(api: RemoteApi, path: string, user: User, timeoutMs: number): Promise<unknown>;
  close(): void;
}

/** Longer discovery responses are refused. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024;

/** Creates the client. `identity`: the certificate that identifies this front proxy to other servers. PEM. */
export function createRemoteClient(
  resolve: ServiceResolver,
  mayDial: MayDial,
  identity: { readonly cert: string; readonly key: string },
): RemoteClient {
  const agent = new Agent({ keepAlive: true, maxSockets: 1000 });
  const open: RemoteClient['open'] = (api, { method, path, headers, user }, through) => {
    const { namespace, name, port } = api.service;
    const address = resolve(namespace, name, port);
    const servername = `${name}.${namespace}.svc`;
    if (api.authority === '') trustPublicAuthorities();
    return httpsRequest({
      agent: through === 'kept' && agent,
      method,
      ...checkedTarget(address.host, mayDial),
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
      const response = await sendTwice(
        (through, onError) =>
          new Promise<IncomingMessage>((done, fail) => {
            const outgoing = open(api, { method: 'GET', path, headers, user }, through);
            outgoing.setTimeout(timeoutMs, () => outgoing.destroy(new Error('context deadline exceeded')));
            outgoing.on('response', done).on('error', (error) => fail(onError(outgoing, error)));
            outgoing.on('close', () => fail(new Error('the connection was closed without an answer')));
            outgoing.end();
          }),
      );
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

/** Returns the headers in which a front proxy names the user (extension-apiserver-authentication lists their names). */
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
