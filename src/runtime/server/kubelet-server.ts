import { createReadStream } from 'node:fs';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { Duplex } from 'node:stream';
import { listenTcpIn } from '../../kernel/netns.ts';
import { type ClientConnections, createClientConnections } from '../../lib/client-connections.ts';
import { DEFAULT_CONNECTION_LIMITS } from '../../lib/connection-table.ts';
import { messageOf } from '../../lib/errors.ts';
import { zpage } from '../../lib/zpages.ts';
import type { ServerTls } from '../options.ts';
import { cadvisorMetrics } from './cadvisor-metrics.ts';
import { type ClientAuthorization, createClientAuthorization } from './client-authorization.ts';
import { serveConnect } from './connect-tunnel.ts';
import { findLogContent, renderFolder } from './log-files.ts';
import { parseLogQuery, sendLog } from './log-request.ts';
import type { KubeletServerOptions, RequestContext } from './request-context.ts';
import {
  parseRequestPath,
  type RequestPath,
  reasonOf,
  requestError,
  STATUS_CODES,
  type StatusReason,
} from './request-path.ts';
import { createUsageReader } from './resource-usage.ts';
import type { ServedPods } from './served-pod.ts';
import { kubeletMetrics, resourceMetrics, statsSummary } from './stats.ts';
import { refuseUpgrade, serveUpgrade } from './upgraded-requests.ts';

type Route = (
  context: RequestContext,
  path: RequestPath,
  response: ServerResponse,
  request: IncomingMessage,
) => Promise<void> | void;

/** Requests by the first part of their path, as in upstream's kubelet; exec, attach and portForward are upgrades. */
const ROUTES: Readonly<Record<string, Route>> = {
  healthz: (_, __, response) => sendText(response, 'ok'),
  pods: ({ pods }, _, response) =>
    sendJson(response, 200, {
      kind: 'PodList',
      apiVersion: 'v1',
      metadata: {},
      items: pods.list().map(({ pod }) => pod),
    }),
  containerLogs({ pods, options }, { parts, query }, response) {
    const [, namespace = '', name = '', container = ''] = parts;
    const found = pods.find(namespace, name)?.container(container);
    if (!found) {
      throw requestError(
        'NotFound',
        `container ${container} of pod ${namespace}/${name} is not on this node`,
      );
    }
    sendLog(found, parseLogQuery(query, options.clock), response, options.signal);
  },
  logs({ pods }, { parts, path }, response) {
    const place = findLogContent(pods.list(), parts.slice(1));
    if ('file' in place) {
      response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' });
      createReadStream(place.file)
        .on('error', (error) => response.destroy(error))
        .pipe(response);
    } else if (path.endsWith('/')) {
      response
        .writeHead(200, { 'content-type': 'text/html; charset=utf-8' })
        .end(renderFolder(place.entries));
    } else {
      // Relative links need the slash.
      response.writeHead(301, { location: `${path.split('/').pop()}/` }).end();
    }
  },
  stats(context, { parts, path }, response) {
    if (parts[1] !== 'summary') throw noPath(path);
    sendJson(response, 200, statsSummary(statsSources(context)));
  },
  metrics(context, { parts, path }, response) {
    if (parts.length === 1) sendText(response, kubeletMetrics(statsSources(context)), METRICS_TYPE);
    else if (parts[1] === 'resource')
      sendText(response, resourceMetrics(statsSources(context)), METRICS_TYPE);
    else if (parts[1] === 'cadvisor')
      sendText(response, cadvisorMetrics(statsSources(context)), METRICS_TYPE);
    else throw noPath(path);
  },
  configz({ options }, _, response) {
    sendJson(response, 200, {
      kubeletconfig: {
        kind: 'KubeletConfiguration',
        apiVersion: 'kubelet.config.k8s.io/v1beta1',
        port: options.server.port,
        clusterDNS: options.clusterDns,
        clusterDomain: options.clusterDomain,
        cgroupRoot: options.cgroupParent,
        cgroupDriver: 'cgroupfs',
        authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: {} },
        authorization: { mode: 'Webhook' },
        containerLogMaxSize: '10Mi',
      },
    });
  },
  statusz: (context, _, response, request) => sendZpage('Statusz', context, request, response),
  flagz: (context, _, response, request) => sendZpage('Flagz', context, request, response),
};

async function sendZpage(
  kind: 'Statusz' | 'Flagz',
  { options }: RequestContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { version, flags, startedAt, clock } = options;
  const paths = Object.keys(ROUTES).map((name) => `/${name}`);
  const source = { version, flags, startedAt, now: clock.now(), paths };
  const { code, type, body } = await zpage(kind, source, request.headers.accept);
  sendText(response, body, type, code);
}

/** The timeout of a request with its body; responses and upgraded connections may last longer. */
const REQUEST_MS = 30_000;
const HANDSHAKE_MS = 10_000;
/**
 * Any pod reaches the port: silent connections of one filled the memory of the process that runs all pods. One without
 * credentials takes about 60 KiB: all of them a small part of what the process may have.
 */
const LIMITS = { ...DEFAULT_CONNECTION_LIMITS, maxUnknownPerSource: 50, maxUnknown: 500 };
/** Handshakes of one client take a part of a processor at most; the API server reuses few connections. */
const RATE = { perSecond: 100, burst: 300 };
/** As http.DefaultMaxHeaderBytes in Go: the path of an exec contains the whole command. */
const MAX_HEADER_BYTES = 1 << 20;
const TEXT_TYPE = 'text/plain; charset=utf-8';
const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

function statsSources({ options, pods, usage }: RequestContext) {
  const { nodeName, stateDir, clock } = options;
  return { nodeName, stateDir, pods: pods.list(), usage, now: clock.now() };
}

/**
 * Serves requests to a node: logs, statistics, exec, attach, port-forward, on a kubelet's paths. Clients need a certificate or a
 * token of the cluster, and rights to the Node. An error in a request affects only this request.
 */
export async function serveKubelet(
  options: KubeletServerOptions,
  pods: ServedPods,
  groupRoot: string | null,
): Promise<{ close(): Promise<void> }> {
  const { port } = options.server;
  let tls: ServerTls = options.server;
  const connections = createClientConnections({ limits: LIMITS, rate: RATE, clock: options.clock });
  const context = {
    options,
    pods,
    usage: createUsageReader(groupRoot, options.clock),
    authorization: recording(
      connections,
      createClientAuthorization(options.client, options.nodeName, options.clock),
    ),
  };
  const listeners = requestListeners(context);
  const servers = options.nodeAddresses.map((address) => {
    const server = createServer(
      { ...tlsSettings(tls), maxHeaderSize: MAX_HEADER_BYTES, handshakeTimeout: HANDSHAKE_MS },
      listeners.request,
    );
    connections.watch(server);
    server.on('secureConnection', (socket) => {
      if (socket.authorized) connections.know(socket);
    });
    server.requestTimeout = REQUEST_MS;
    server.on('upgrade', listeners.upgrade);
    server.on('connect', serveConnect);
    // The socket is opened here, so that an address in use is reported immediately, with its name.
    server.listen({ fd: listenTcpIn(null, address, port) });
    return server;
  });
  options.server.onChange?.((changed) => {
    tls = { ...tls, ...changed };
    for (const server of servers) server.setSecureContext(tlsSettings(tls));
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

/** Returns an authorization which records that clients have shown credentials. */
const recording = (
  connections: ClientConnections,
  { authorize }: ClientAuthorization,
): ClientAuthorization => ({
  authorize(request, isUpgrade) {
    const decision = authorize(request, isUpgrade);
    if (decision === null) connections.know(request.socket);
    return decision?.then(() => connections.know(request.socket)) ?? null;
  },
});

const tlsSettings = ({ cert, key, clientCa }: ServerTls) => ({
  ...(cert === '' ? {} : { cert, key }),
  ca: clientCa,
  requestCert: true,
  // Clients without a certificate may have a token.
  rejectUnauthorized: false,
  ALPNProtocols: ['http/1.1'],
});

/** Returns the server's listeners. They never throw: errors become responses. */
export function requestListeners(context: RequestContext): {
  readonly request: RequestListener;
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
} {
  const { logger } = context.options;
  return {
    request(request, response) {
      const fail = (error: unknown) => {
        const reason = reasonOf(error);
        if (reason === 'InternalError') logger.warn({ path: request.url, err: error }, messageOf(error));
        if (response.headersSent) response.destroy();
        // As upstream's kubelet: kube-apiserver makes a Status of the text.
        else if (request.url?.startsWith('/containerLogs/'))
          sendText(response, messageOf(error), TEXT_TYPE, STATUS_CODES[reason]);
        else sendStatus(response, reason, messageOf(error));
      };
      const answer = () => {
        try {
          respond(context, request, response)?.catch(fail);
        } catch (error) {
          fail(error);
        }
      };
      try {
        const decision = context.authorization.authorize(request, false);
        if (decision) decision.then(answer, fail);
        else answer();
      } catch (error) {
        fail(error);
      }
    },
    upgrade(request, socket, head) {
      socket.on('error', () => socket.destroy());
      serveUpgrade(context, request, socket, head).catch((error: unknown) => {
        logger.warn({ path: request.url }, messageOf(error));
        refuseUpgrade(socket, reasonOf(error), messageOf(error));
      });
    },
  };
}

function respond(
  context: RequestContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> | null {
  const path = parseRequestPath(request.url);
  const first = path.parts[0] ?? '';
  const route = Object.hasOwn(ROUTES, first) ? ROUTES[first] : undefined;
  if (!route) throw noPath(path.path);
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    throw requestError('MethodNotAllowed', `${request.method} is not supported at ${path.path}`);
  }
  return route(context, path, response, request) ?? null;
}

const noPath = (path: string) => requestError('NotFound', `there is no ${path} on this node`);

function sendText(response: ServerResponse, text: string, type = TEXT_TYPE, code = 200): void {
  response.writeHead(code, { 'content-type': type, 'content-length': Buffer.byteLength(text) }).end(text);
}

function sendJson(response: ServerResponse, code: number, body: object): void {
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
  response.writeHead(code, headers).end(text);
}

/**
 * Sends a metav1.Status: the API server forwards the response unchanged, and kubectl shows only the message of a
 * Status.
 */
function sendStatus(response: ServerResponse, reason: StatusReason, message: string): void {
  const code = STATUS_CODES[reason];
  sendJson(response, code, {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message,
    reason,
    code,
  });
}
