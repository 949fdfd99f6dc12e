import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import type { Duplex } from 'node:stream';
import { messageOf } from '../lib/errors.ts';
import { statusResponse } from './api-handler.ts';
import { type ApiPath, type IncomingRequest, type OutgoingResponse, parseApiPath } from './api-request.ts';
import { type ApiObject, at, isObject, listAt, textAt } from './object.ts';
import { badRequest, notFound, StatusError } from './status-error.ts';
import type { Store } from './store.ts';

export interface NodeTunnelOptions {
  readonly store: Store;
  /** The API server's own identity towards the nodes, and the authority of theirs. PEM. */
  readonly tls: { readonly cert: string; readonly key: string; readonly ca: string };
}

interface NodeTarget {
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly node: string;
}

const CONNECT_MS = 5000;
const PODS = { group: '', kind: 'Pod', plural: 'pods' };
const NODES = { group: '', kind: 'Node', plural: 'nodes' };

/** Carries logs, exec, attach and port-forward to the node where the pod runs, as a real API server asks a kubelet. */
export function createNodeTunnel(options: NodeTunnelOptions) {
  const agent = new Agent({ keepAlive: true, ...options.tls, checkServerIdentity: () => undefined });
  const open = (target: NodeTarget, method: string, headers: Record<string, string>): ClientRequest =>
    httpsRequest({ agent, host: target.host, port: target.port, path: target.path, method, headers })
      // A node that is gone drops packets; one that is there accepts at once. Answers may take their time.
      .on('socket', (socket) => {
        if (!socket.connecting) return;
        const late = setTimeout(() => socket.destroy(new Error('no connection within 5 s')), CONNECT_MS);
        socket.once('connect', () => clearTimeout(late)).once('close', () => clearTimeout(late));
      });

  return {
    /** Plain requests: logs, and what nodes/proxy asks for. */
    async request(path: ApiPath, request: IncomingRequest): Promise<OutgoingResponse> {
      const target = nodeTarget(options.store, path, new URL(request.url, 'http://localhost').searchParams);
      const response = await new Promise<IncomingMessage>((resolve, reject) => {
        const outgoing = open(target, request.method === 'POST' ? 'POST' : 'GET', {});
        outgoing.on('response', resolve);
        outgoing.on('error', (error) => reject(unreachable(target, error)));
        request.signal.addEventListener('abort', () => outgoing.destroy());
        outgoing.end(request.body.length > 0 ? request.body : undefined);
      });
      const type = response.headers['content-type'] ?? 'text/plain';
      return {
        status: response.statusCode ?? 502,
        headers: { 'content-type': type },
        body: response,
      };
    },
    /** Upgrades: after the node's 101 the two sockets are joined, byte by byte; the node speaks the protocol. */
    upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
      const refuse = (error: StatusError) => {
        const { status, headers, body } = statusResponse(error);
        const text = String(body);
        const lines = [
          `HTTP/1.1 ${status} ${error.reason}`,
          ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
        ];
        socket.end(
          `${lines.join('\r\n')}\r\ncontent-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`,
        );
      };
      socket.on('error', () => socket.destroy());
      let target: NodeTarget;
      try {
        const url = new URL(request.url ?? '/', 'http://localhost');
        const path = parseApiPath(url.pathname);
        if (!path)
          throw new StatusError(404, 'NotFound', 'the server could not find the requested resource', {});
        target = nodeTarget(options.store, path, url.searchParams);
      } catch (error) {
        refuse(
          error instanceof StatusError ? error : new StatusError(500, 'InternalError', messageOf(error)),
        );
        return;
      }
      const outgoing = open(target, request.method ?? 'GET', forwarded(request));
      let answered = false;
      outgoing.on('upgrade', (response: IncomingMessage, nodeSocket: Duplex, nodeHead: Buffer) => {
        answered = true;
        socket.write(responseHead(response));
        if (nodeHead.length > 0) socket.write(nodeHead);
        if (head.length > 0) nodeSocket.write(head);
        nodeSocket.pipe(socket);
        socket.pipe(nodeSocket);
        const end = () => {
          nodeSocket.destroy();
          socket.destroy();
        };
        nodeSocket.on('error', end).on('close', end);
        socket.on('close', end);
      });
      outgoing.on('response', (response: IncomingMessage) => {
        answered = true;
        socket.write(responseHead(response));
        response.pipe(socket);
      });
      outgoing.on('error', (error) => {
        if (answered) socket.destroy();
        else refuse(unreachable(target, error));
      });
      socket.on('close', () => outgoing.destroy());
      outgoing.end();
    },
    close: () => agent.destroy(),
  };
}

function unreachable(target: NodeTarget, error: unknown): StatusError {
  return new StatusError(
    502,
    'BadGateway',
    `node ${target.node} does not answer at ${target.host}:${target.port}: ${messageOf(error)}; is its agent running?`,
  );
}

function forwarded(request: IncomingMessage): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(request.headers)) {
    if (value === undefined || name === 'host' || name === 'authorization') continue;
    headers[name] = Array.isArray(value) ? value.join(', ') : value;
  }
  return headers;
}

function responseHead(response: IncomingMessage): string {
  const lines = [`HTTP/1.1 ${response.statusCode} ${response.statusMessage}`];
  for (let i = 0; i + 1 < response.rawHeaders.length; i += 2) {
    // The body that follows is passed on decoded, so its framing is not.
    if (/^(transfer-encoding)$/i.test(response.rawHeaders[i] ?? '')) continue;
    lines.push(`${response.rawHeaders[i]}: ${response.rawHeaders[i + 1]}`);
  }
  return `${lines.join('\r\n')}\r\n\r\n`;
}

/** Which node to ask, and under which path of the kubelet's server. */
function nodeTarget(store: Store, path: ApiPath, query: URLSearchParams): NodeTarget {
  if (path.plural === 'nodes') {
    const rest = path.subresource.replace(/^proxy\/?/, '');
    return { ...nodeAddress(store, path.name), path: `/${rest}${queryText(query)}` };
  }
  const pod = store.get('pods', `${path.namespace}/${path.name}`)?.object;
  if (!pod) throw notFound(PODS, path.name);
  const node = textAt(pod, 'spec', 'nodeName');
  if (node === '') throw badRequest(`pod ${path.name} does not have a host assigned`);
  const words: Readonly<Record<string, string>> = {
    log: 'containerLogs',
    exec: 'exec',
    attach: 'attach',
    portforward: 'portForward',
  };
  const word = words[path.subresource] ?? path.subresource;
  if (path.subresource === 'portforward') {
    return {
      ...nodeAddress(store, node),
      path: `/${word}/${path.namespace}/${path.name}${queryText(query)}`,
    };
  }
  const container = containerOf(pod, query.get('container'));
  query.delete('container');
  // A kubelet knows the streams by shorter names.
  for (const [name, short] of [
    ['stdin', 'input'],
    ['stdout', 'output'],
    ['stderr', 'error'],
  ] as const) {
    const value = query.get(name);
    if (value === null || path.subresource === 'log') continue;
    query.delete(name);
    if (value === 'true' || value === '1') query.set(short, '1');
  }
  if (query.get('tty') === 'true') query.set('tty', '1');
  return {
    ...nodeAddress(store, node),
    path: `/${word}/${path.namespace}/${path.name}/${container}${queryText(query)}`,
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

/** The container that was asked for, or the one that kubectl would take. */
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
