import { type Client, createClient } from '../client.ts';
import type { ApiRequest, Transport } from '../transport.ts';
import { jsonAnswer } from './json-answer.ts';

export interface Stored {
  metadata: { name: string; resourceVersion: string };
  [field: string]: unknown;
}

export interface MiniatureServer {
  /** By path. */
  readonly objects: ReadonlyMap<string, Stored>;
  /** The names of clients whose requests fail. */
  readonly down: Set<string>;
  /** Called before each answer: it delays it. */
  delay: (request: ApiRequest) => Promise<void>;
  /** Returns true for requests that the client of this name has no right to. */
  forbids: (request: ApiRequest, client: string) => boolean;
  client(name: string): Client;
}

/** Starts an API server in miniature: objects by path, with versions and conflicts, and lists and watches of them by namespace. */
export function miniatureServer(): MiniatureServer {
  const objects = new Map<string, Stored>();
  let version = 0;
  const down = new Set<string>();
  const events: { type: string; key: string; object: Stored; version: number }[] = [];
  let awaken = Promise.withResolvers<void>();
  const record = (type: string, key: string, object: Stored) => {
    events.push({ type, key, object, version });
    awaken.resolve();
    awaken = Promise.withResolvers<void>();
  };
  const refuse = (status: number, reason: string, message = '') =>
    jsonAnswer(status, { kind: 'Status', code: status, reason, message });
  /** Streams the events of a folder after a version, until the request ends. */
  async function* follow(request: ApiRequest, folder: string, since: number) {
    const ended = new Promise<void>((resolve) => {
      request.signal?.addEventListener('abort', () => resolve());
    });
    for (let next = events.findIndex((event) => event.version > since); ; ) {
      if (next < 0) next = events.length;
      for (; next < events.length; next++) {
        const event = events[next];
        if (!event?.key.startsWith(folder)) continue;
        await server.delay(request);
        request.signal?.throwIfAborted();
        yield Buffer.from(`${JSON.stringify({ type: event.type, object: event.object })}\n`);
      }
      await Promise.race([awaken.promise, ended]);
      request.signal?.throwIfAborted();
    }
  }
  const respond: Transport = async (request) => {
    const client = request.headers['user-agent'] ?? '';
    if (down.has(client)) throw new Error('unreachable');
    if (server.forbids(request, client))
      return refuse(403, 'Forbidden', `User "${client}" cannot ${request.method} ${request.path}`);
    const [path = '', query] = request.path.split('?');
    if (request.method === 'GET' && /\/namespaces\/[^/]+\/[^/]+$/.test(path)) {
      const asked = new URLSearchParams(query);
      const folder = `${path}/`;
      if (asked.has('watch')) {
        const body = follow(request, folder, Number(asked.get('resourceVersion')));
        return { status: 200, headers: {}, body };
      }
      const items = [...objects].flatMap(([key, object]) => (key.startsWith(folder) ? [object] : []));
      return jsonAnswer(200, { kind: 'List', metadata: { resourceVersion: String(version) }, items });
    }
    const body = request.body === undefined ? null : (JSON.parse(String(request.body)) as Stored);
    const key = request.method === 'POST' ? `${path}/${body?.metadata.name}` : path;
    const before = objects.get(key);
    switch (request.method) {
      case 'GET':
        return before ? jsonAnswer(200, before) : refuse(404, 'NotFound');
      case 'POST':
        if (before) return refuse(409, 'AlreadyExists');
        break;
      case 'PUT':
        if (!before) return refuse(404, 'NotFound');
        if (body?.metadata.resourceVersion !== before.metadata.resourceVersion)
          return refuse(409, 'Conflict');
        break;
      case 'DELETE':
        if (!before) return refuse(404, 'NotFound');
        version++;
        objects.delete(key);
        record('DELETED', key, {
          ...before,
          metadata: { ...before.metadata, resourceVersion: String(version) },
        });
        return jsonAnswer(200, before);
      default:
        if (!before) return refuse(404, 'NotFound');
    }
    const stored = {
      ...before,
      ...body,
      metadata: { ...before?.metadata, ...body?.metadata, resourceVersion: String(++version) },
    } as Stored;
    objects.set(key, stored);
    record(before ? 'MODIFIED' : 'ADDED', key, stored);
    return jsonAnswer(200, stored);
  };
  const server: MiniatureServer = {
    objects,
    down,
    delay: async () => {},
    forbids: () => false,
    client: (name) =>
      createClient(async (request) => {
        const response = await respond(request);
        await server.delay(request);
        request.signal?.throwIfAborted();
        return response;
      }, name),
  };
  return server;
}
