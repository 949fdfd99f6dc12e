import { type Clock, systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { type CertificateAuthority, createAuthority, createSigningKey } from '../../lib/pki.ts';
import { type ApiServer, type ApiServerOptions, createApiServer } from '../api-server.ts';
import { KINDS } from '../kinds.ts';
import type { ApiObject } from '../object.ts';
import { createSchemaService } from '../schema/service.ts';
import { createTableService } from '../tables/tables.ts';

/** A response with its decoded body. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  // Tests read into answers of every shape.
  // biome-ignore lint/suspicious/noExplicitAny: a test names the fields that it expects
  readonly body: any;
}

/** An API server for tests, called without a network. */
export interface TestApi {
  readonly server: ApiServer;
  readonly authority: CertificateAuthority;
  request(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** Yields the events of a watch. */
  watch(path: string, signal: AbortSignal): AsyncGenerator<{ type: string; object: ApiObject }>;
}

export interface TestApiOptions extends Partial<ApiServerOptions> {
  /** Field manager of requests without one in their query. */
  readonly userAgent?: string;
}

/** Starts a server with the real schema and tables on a database in memory. */
export function startApi(options: TestApiOptions = {}): TestApi {
  const authority = createAuthority('test', new Date());
  const own = authority.issue({
    commonName: 'apiserver',
    // Kubelets accept requests from this group only.
    organizations: ['system:masters'],
    names: ['127.0.0.1', 'localhost'],
    usage: 'both',
  });
  const clock: Clock = options.clock ?? systemClock;
  const server = createApiServer({
    dataFile: ':memory:',
    serviceCidrs: ['10.96.0.0/16', 'fd00:96::/112'],
    nodePorts: { first: 30000, last: 32767 },
    advertise: { addresses: ['192.0.2.1'], port: 6443 },
    tls: { ...own, clientCa: authority.cert },
    nodeTls: { ...own, ca: authority.cert },
    tokenKey: createSigningKey(),
    schema: createSchemaService({ kinds: KINDS }),
    tables: createTableService(),
    version: 'v1.36.0-fairlead',
    random: Math.random,
    logger: silentLogger,
    ...options,
    clock,
  });
  const send = (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
    signal?: AbortSignal,
  ) =>
    server.transport({
      method: method as 'GET',
      path,
      headers: { accept: 'application/json', 'content-type': 'application/json', ...headers },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  return {
    server,
    authority,
    async request(method, path, body, headers) {
      const answer = await send(method, path, body, headers);
      const chunks: Uint8Array[] = [];
      for await (const chunk of answer.body) chunks.push(chunk);
      const text = Buffer.concat(chunks).toString();
      const isJson = answer.headers['content-type']?.startsWith('application/json');
      return {
        status: answer.status,
        headers: answer.headers,
        body: isJson && text !== '' ? JSON.parse(text) : text,
      };
    },
    async *watch(path, signal) {
      const answer = await send('GET', path, undefined, {}, signal);
      let rest = '';
      try {
        for await (const chunk of answer.body) {
          rest += Buffer.from(chunk).toString();
          const lines = rest.split('\n');
          rest = lines.pop() ?? '';
          for (const line of lines) if (line !== '') yield JSON.parse(line);
        }
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    },
  };
}

export const CORE = '/api/v1/namespaces/default';
export const APPS = '/apis/apps/v1/namespaces/default';

export const configMap = (
  name: string,
  data: Record<string, string> = {},
  labels: Record<string, string> = {},
) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, labels },
  data,
});

export const deployment = (name: string, spec: object = {}) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name },
  spec: {
    replicas: 1,
    selector: { matchLabels: { app: name } },
    template: {
      metadata: { labels: { app: name } },
      spec: { containers: [{ name: 'c', image: 'host', ports: [{ containerPort: 80 }] }] },
    },
    ...spec,
  },
});

export const service = (name: string, spec: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name },
  spec: { selector: { app: name }, ports: [{ port: 80 }], ...spec },
});

export const pod = (name: string, spec: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, labels: { app: name } },
  spec: { containers: [{ name: 'c', image: 'host' }], ...spec },
});
