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
  client(name: string): Client;
}

/** Starts an API server in miniature: objects by path, with versions and conflicts. */
export function miniatureServer(): MiniatureServer {
  const objects = new Map<string, Stored>();
  let version = 0;
  const down = new Set<string>();
  const refuse = (status: number, reason: string) =>
    jsonAnswer(status, { kind: 'Status', code: status, reason });
  const respond: Transport = async (request) => {
    if (down.has(request.headers['user-agent'] ?? '')) throw new Error('unreachable');
    const path = request.path.split('?')[0] ?? '';
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
      default:
        if (!before) return refuse(404, 'NotFound');
    }
    const stored = {
      ...before,
      ...body,
      metadata: { ...before?.metadata, ...body?.metadata, resourceVersion: String(++version) },
    } as Stored;
    objects.set(key, stored);
    return jsonAnswer(200, stored);
  };
  const server: MiniatureServer = {
    objects,
    down,
    delay: async () => {},
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
