import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { TLSSocket } from 'node:tls';
import { listenTcpIn } from '../kernel/netns.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import { readLog } from './container-logs.ts';
import type { KubeletOptions } from './options.ts';
import type { PodWorker } from './pod-worker.ts';
import { serveUpgrade } from './upgraded-requests.ts';

/** metav1.StatusReason of the answers that are not logs. */
const REASONS: Readonly<Record<number, string>> = { 400: 'BadRequest', 401: 'Unauthorized', 404: 'NotFound' };

type FindPod = (namespace: string, name: string) => PodWorker | undefined;

/** Serves what the API server asks of a node: logs, exec, attach, port-forward; paths as a kubelet's. */
export async function serveKubelet(
  options: KubeletOptions,
  find: FindPod,
): Promise<{ close(): Promise<void> }> {
  const { cert, key, clientCa, port } = options.server;
  const tls = {
    cert,
    key,
    ca: clientCa,
    requestCert: true,
    rejectUnauthorized: true,
    ALPNProtocols: ['http/1.1'],
  };
  const servers = options.nodeAddresses.map((address) => {
    const server = createServer(tls, (request, response) => {
      respond(options, find, request, response);
    });
    server.on('upgrade', (request, socket, head) => {
      serveUpgrade(options, find, request, socket, head).catch((error: unknown) => {
        options.logger.warn({ path: request.url }, messageOf(error));
        socket.destroy();
      });
    });
    // The descriptor is opened here, so that an address in use is an error at once and by name.
    server.listen({ fd: listenTcpIn(null, address, port) });
    return server;
  });
  return {
    async close() {
      await Promise.all(
        servers.map((server) => {
          server.closeAllConnections();
          return new Promise<void>((resolve) => server.close(() => resolve()));
        }),
      );
    },
  };
}

function respond(
  options: KubeletOptions,
  find: FindPod,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  // The API server passes the answer on as it is, and kubectl shows the message of a Status only.
  const refuse = (code: number, message: string) => {
    const reason = REASONS[code] ?? 'InternalError';
    const body = { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message, reason, code };
    response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  };
  if (!(request.socket as TLSSocket).authorized) {
    refuse(401, 'a certificate of the cluster is needed');
    return;
  }
  const url = new URL(request.url ?? '/', 'https://node');
  const [what, namespace = '', name = '', container = ''] = url.pathname
    .slice(1)
    .split('/')
    .map(decodeURIComponent);
  if (what === 'healthz') {
    response.end('ok');
    return;
  }
  if (what !== 'containerLogs') {
    refuse(404, `there is no ${url.pathname} here`);
    return;
  }
  const runner = find(namespace, name)?.container(container);
  if (!runner) {
    refuse(404, `container ${container} of pod ${namespace}/${name} is not on this node`);
    return;
  }
  const query = url.searchParams;
  const previous = query.get('previous') === 'true';
  const number = (field: string) => (query.has(field) ? Number(query.get(field)) : null);
  const since = number('sinceSeconds');
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  options.signal.addEventListener('abort', () => gone.abort(), { once: true });
  try {
    const file = runner.logFile(previous);
    const { id } = runner;
    const log = readLog(file, {
      follow: query.get('follow') === 'true',
      tailLines: number('tailLines'),
      sinceTime:
        since !== null
          ? new Date(options.clock.now() - since * 1000)
          : query.has('sinceTime')
            ? new Date(query.get('sinceTime') ?? '')
            : null,
      timestamps: query.get('timestamps') === 'true',
      limitBytes: number('limitBytes'),
      ended: () => previous || runner.id !== id || !runner.isRunning,
      signal: gone.signal,
    });
    response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' });
    response.flushHeaders();
    log.on('error', (error) => {
      if (hasCode(error, 'ENOENT')) response.end(`unable to retrieve container logs for crun://${id}\n`);
      else response.destroy(error);
    });
    log.pipe(response);
  } catch (error) {
    refuse(hasCode(error, 'BadRequest') ? 400 : 500, messageOf(error));
  }
}
