import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { type Duplex, Readable } from 'node:stream';
import type { MayDial } from '../kube/dial-check.ts';
import { messageOf } from '../lib/errors.ts';
import { allowed } from './cluster-dialer.ts';
import { joinSockets } from './joined-sockets.ts';
import { type Send, sendOnce, sendTwice, type Through } from './kept-connection.ts';
import { type ApiObject, at, isObject, listAt, textAt } from './object.ts';
import { forwardedHeaders, upgradeHeaders } from './requests/forwarded-headers.ts';
import type { OutgoingResponse } from './requests/request.ts';
import type { ObjectRequestContext, RequestContext } from './requests/request-context.ts';
import { badRequest, notFound, StatusError } from './status-error.ts';
import type { Store } from './store.ts';

export interface NodeTunnelOptions {
  readonly store: Store;
  readonly mayDial: MayDial;
  /** The API server's certificate for connections to nodes, and the nodes' authority. PEM. */
  readonly tls: { readonly cert: string; readonly key: string; readonly ca: string };
}

interface NodeTarget {
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly node: string;
}

/** The parts of a request besides its line. */
interface Sent {
  readonly headers?: Record<string, string>;
  readonly body?: Readable;
  readonly signal?: AbortSignal;
}

/** The reasons of a kubelet's statuses. */
const REFUSALS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
};
/** Upstream's limit, in characters. */
const MAX_REFUSAL = 10_000;
const CONNECT_MS = 5000;
const PODS = { group: '', kind: 'Pod', plural: 'pods' };
const NODES = { group: '', kind: 'Node', plural: 'nodes' };

/** Forwards requests to the nodes' own servers, as kube-apiserver does to kubelets. */
export interface NodeTunnel {
  /** Forwards a request for a pod's log, exec, attach or portforward, with or without a protocol upgrade. */
  podStream(context: ObjectRequestContext, subresource: string): Promise<OutgoingResponse>;
  /**
   * Returns the JSON at a path of a node's server. Throws StatusError 502 if the node does not answer or not with JSON.
   */
  read(node: string, path: string): Promise<unknown>;
  /** Forwards any request to a node's own server. */
  nodeProxy(context: ObjectRequestContext): Promise<OutgoingResponse>;
  close(): void;
}

export function createNodeTunnel(options: NodeTunnelOptions): NodeTunnel {
  const tls = { ...options.tls, checkServerIdentity: () => undefined };
  const kept = new Agent({ keepAlive: true, ...tls });
  const open = (
    { host, port, path }: NodeTarget,
    method: string,
    headers: Record<string, string>,
    through: Through,
  ): ClientRequest =>
    httpsRequest({
      ...tls,
      ...allowed(host, options.mayDial),
      agent: through === 'kept' && kept,
      port,
      path,
      method,
      headers,
    })
      // A dead node drops packets; a live one accepts immediately. Responses may take longer.
      .on('socket', (socket) => {
        if (!socket.connecting) return;
        const late = setTimeout(() => socket.destroy(new Error('no connection within 5 s')), CONNECT_MS);
        socket.once('connect', () => clearTimeout(late)).once('close', () => clearTimeout(late));
      });

  /** Resolves to the node's response. `body`: cannot be sent again, and so gets a connection of its own. */
  async function ask(
    target: NodeTarget,
    method: string,
    { headers = {}, body, signal }: Sent = {},
  ): Promise<IncomingMessage> {
    const send: Send<IncomingMessage> = (through, onError) =>
      new Promise((resolve, reject) => {
        const outgoing = open(target, method, headers, through);
        outgoing.on('response', resolve).on('error', (error) => reject(onError(outgoing, error)));
        outgoing.on('close', () => reject(new Error('the connection was closed without an answer')));
        signal?.addEventListener('abort', () => outgoing.destroy());
        if (body) body.on('error', (error) => outgoing.destroy(error)).pipe(outgoing);
        else outgoing.end();
      });
    try {
      return await (body ? sendOnce(send, 'own') : sendTwice(send));
    } catch (error) {
      throw error instanceof StatusError ? error : unreachable(target, error);
    }
  }

  /** Forwards a plain request and streams the node's response back. */
  async function plain({ request, signal }: RequestContext, target: NodeTarget): Promise<OutgoingResponse> {
    const { method } = request;
    const hasBody = method !== 'GET' && method !== 'HEAD';
    const sent = hasBody
      ? { headers: forwardedHeaders(request.headers), body: request.stream(), signal }
      : { signal };
    const response = await ask(target, method, sent);
    const { location } = response.headers;
    return {
      status: response.statusCode ?? 502,
      headers: {
        'content-type': response.headers['content-type'] ?? 'text/plain',
        ...(location === undefined ? {} : { location }),
      },
      body: response,
    };
  }

  /** Joins the two connections after the node's 101, byte by byte; the node implements the protocol. */
  async function upgraded(context: RequestContext, target: NodeTarget): Promise<OutgoingResponse> {
    const { request } = context;
    const { upgrade } = request;
    if (!upgrade) return plain(context, target);
    const { socket, head } = upgrade;
    return new Promise((resolve, reject) => {
      const outgoing = open(target, request.method, upgradeHeaders(request.headers), 'own');
      outgoing.on('upgrade', (response: IncomingMessage, nodeSocket: Duplex, nodeHead: Buffer) => {
        resolve('upgraded');
        joinSockets(socket, head, response, nodeSocket, nodeHead);
      });
      outgoing.on('response', (response: IncomingMessage) => {
        resolve({
          status: response.statusCode ?? 502,
          headers: { 'content-type': response.headers['content-type'] ?? 'text/plain' },
          body: response,
        });
      });
      outgoing.on('error', (error) => reject(unreachable(target, error)));
      outgoing.on('close', () =>
        reject(unreachable(target, new Error('the connection was closed without an answer'))),
      );
      socket.on('close', () => outgoing.destroy());
      outgoing.end();
    });
  }

  return {
    async podStream(context, subresource) {
      const target = podTarget(options.store, context, subresource);
      // Nodes answer logs without WebSocket; this server adds the framing if a client requests it.
      return subresource === 'log' ? logAnswer(await plain(context, target)) : upgraded(context, target);
    },
    async nodeProxy(context) {
      const path = `${context.info.subpath || '/'}${queryText(context.query)}`;
      return upgraded(context, { ...nodeAddress(options.store, context.name), path });
    },
    async read(node, path) {
      const target = { ...nodeAddress(options.store, node), path };
      const response = await ask(target, 'GET');
      try {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk as Buffer);
        if (response.statusCode !== 200) throw new Error(`HTTP status ${response.statusCode}`);
        return JSON.parse(Buffer.concat(chunks).toString('utf8'));
      } catch (error) {
        throw unreachable(target, error);
      }
    },
    close: () => kept.destroy(),
  };
}

/** Returns a node's answer to a request for a log. Throws StatusError with the text of a refusal. */
async function logAnswer(answer: OutgoingResponse): Promise<OutgoingResponse> {
  if (answer === 'upgraded' || answer.status < 400 || !(answer.body instanceof Readable)) return answer;
  let text = '';
  for await (const chunk of answer.body) {
    text += String(chunk);
    if (text.length > MAX_REFUSAL) break;
  }
  const reason = REFUSALS[answer.status] ?? 'InternalError';
  throw new StatusError(answer.status, reason, text.slice(0, MAX_REFUSAL).trim());
}

function unreachable(target: NodeTarget, error: unknown): StatusError {
  return new StatusError(
    502,
    'BadGateway',
    `node ${target.node} does not answer at ${target.host}:${target.port}: ${messageOf(error)}; is its agent running?`,
  );
}

/** Returns the node to contact, and the path on its server. */
function podTarget(store: Store, context: ObjectRequestContext, subresource: string): NodeTarget {
  const { namespace, name } = context;
  const query = new URLSearchParams(context.query);
  const pod = store.get('pods', `${namespace}/${name}`)?.object;
  if (!pod) throw notFound(PODS, name);
  const node = textAt(pod, 'spec', 'nodeName');
  if (node === '') throw badRequest(`pod ${name} does not have a host assigned`);
  const words: Readonly<Record<string, string>> = {
    log: 'containerLogs',
    exec: 'exec',
    attach: 'attach',
    portforward: 'portForward',
  };
  const word = words[subresource] ?? subresource;
  if (subresource === 'portforward') {
    return {
      ...nodeAddress(store, node),
      path: `/${word}/${namespace}/${name}${queryText(query)}`,
    };
  }
  const container = containerOf(pod, query.get('container'));
  query.delete('container');
  // A kubelet has shorter names for the streams.
  for (const [name, short] of [
    ['stdin', 'input'],
    ['stdout', 'output'],
    ['stderr', 'error'],
  ] as const) {
    const value = query.get(name);
    if (value === null || subresource === 'log') continue;
    query.delete(name);
    if (value === 'true' || value === '1') query.set(short, '1');
  }
  if (query.get('tty') === 'true') query.set('tty', '1');
  return {
    ...nodeAddress(store, node),
    path: `/${word}/${namespace}/${name}/${container}${queryText(query)}`,
  };
}

function nodeAddress(store: Store, name: string): { host: string; port: number; node: string } {
  const node = store.get('nodes', `/${name}`)?.object;
  if (!node) throw notFound(NODES, name);
  const address = listAt(node, 'status', 'addresses').find((one) => one['type'] === 'InternalIP')?.[
    'address'
  ];
  const port = at(node, 'status', 'daemonEndpoints', 'kubeletEndpoint', 'Port');
  if (typeof address !== 'string' || typeof port !== 'number') {
    throw new StatusError(503, 'ServiceUnavailable', `node ${name} has not reported an address yet`);
  }
  return { host: address, port, node: name };
}

/** Returns the requested container, or the one that kubectl would choose. */
function containerOf(pod: ApiObject, asked: string | null): string {
  const all = ['containers', 'initContainers', 'ephemeralContainers'].flatMap((list) =>
    listAt(pod, 'spec', list),
  );
  const names = all.map((container) => String(container['name']));
  if (asked) {
    if (names.includes(asked)) return asked;
    throw badRequest(`container ${asked} is not valid for pod ${pod.metadata.name}`);
  }
  const annotations = isObject(pod.metadata.annotations) ? pod.metadata.annotations : {};
  const preferred = annotations['kubectl.kubernetes.io/default-container'];
  if (typeof preferred === 'string' && names.includes(preferred)) return preferred;
  const containers = listAt(pod, 'spec', 'containers').map((container) => String(container['name']));
  if (containers.length > 1) {
    throw badRequest(
      `a container name must be specified for pod ${pod.metadata.name}, choose one of: [${containers.join(' ')}]`,
    );
  }
  return containers[0] ?? '';
}

function queryText(query: URLSearchParams): string {
  const text = query.toString();
  return text === '' ? '' : `?${text}`;
}
