import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram } from '../../../kernel/program-path.ts';
import { systemClock } from '../../../lib/clock.ts';
import { silentLogger } from '../../../lib/log.ts';
import type { Backend, RouteMap } from '../../route-map.ts';
import type { Place } from '../held-sockets.ts';
import { createProxyProcess, FIRST_SOCKET, type ProxyProcess } from '../proxy-process.ts';
import { render } from '../render.ts';
import { type Endpoint, type ProxySettings, type Rendering, withServers } from '../rendering.ts';

/** HAProxy on this machine; null: the tests that need it are skipped. */
export const HAPROXY = findProgram('haproxy', ['/usr/sbin']);

export const SETTINGS: ProxySettings = { threads: 1, maxConnections: 1000, user: null, chroot: null };

export interface RunningProxy {
  readonly process: ProxyProcess;
  readonly port: number;
  /** Returns HAProxy's complaint, or null. */
  replace(
    rendering: Rendering,
    endpointsOf?: (backend: Backend) => readonly Endpoint[],
  ): Promise<string | null>;
  render(
    routeMap: RouteMap,
    more?: Partial<Parameters<typeof render>[0]>,
    excluded?: ReadonlySet<string>,
  ): Rendering;
  stop(): Promise<void>;
}

/** Starts a proxy on a port of loopback, without a configuration. */
export async function startProxy(): Promise<RunningProxy> {
  const folder = mkdtempSync(join(tmpdir(), 'fairlead-proxy-'));
  const process = createProxyProcess({
    program: HAPROXY ?? 'haproxy',
    folder,
    memoryMiB: 512,
    clock: systemClock,
    logger: silentLogger,
    onChange() {},
  });
  const place: Place = { address: '127.0.0.1', port: await freePort() };
  const opened = process.openSockets([place]);
  if (opened.problems.length > 0) throw new Error(opened.problems.join());
  return {
    process,
    port: place.port,
    render: (routeMap, more = {}, excluded = new Set<string>()) =>
      render(
        {
          routeMap,
          settings: SETTINGS,
          binds: () => [`fd@${FIRST_SOCKET}`],
          certificates: new Map(),
          fallbackCertificate: '',
          authorities: new Map(),
          ...more,
        },
        excluded,
      ),
    replace: (rendering, endpointsOf = () => []) =>
      process.replace({ files: withServers(rendering, endpointsOf), places: [place] }),
    async stop() {
      process.stop();
      await process.ended();
      process.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export interface Seen {
  readonly method: string;
  readonly target: string;
  readonly host: string;
  readonly headers: readonly { readonly name: string; readonly value: string }[];
}

/** A server that answers with what it has seen, as JSON. */
export async function startMirror(
  answer: (request: IncomingMessage, response: ServerResponse) => void = () => {},
): Promise<{ readonly port: number; readonly requests: Seen[]; close(): Promise<void> }> {
  const requests: Seen[] = [];
  const server = createServer((request, response) => {
    const headers: Seen['headers'][number][] = [];
    for (let i = 0; i < request.rawHeaders.length; i += 2)
      headers.push({ name: request.rawHeaders[i] ?? '', value: request.rawHeaders[i + 1] ?? '' });
    const seen: Seen = {
      method: request.method ?? '',
      target: request.url ?? '',
      host: request.headers.host ?? '',
      headers,
    };
    requests.push(seen);
    answer(request, response);
    // Who has begun the answer ends it.
    if (!response.headersSent) response.end(JSON.stringify(seen));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export interface RawAnswer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** Sends bytes as they are on a connection of their own, and reads until the server closes it. Status 0: it closed at once. */
export function sendRaw(port: number, bytes: string): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', reject);
    socket.on('close', () => resolve(parseAnswer(Buffer.concat(chunks).toString('latin1'))));
    socket.write(bytes, 'latin1');
  });
}

export function parseAnswer(text: string): RawAnswer {
  const end = text.indexOf('\r\n\r\n');
  const [first = '', ...lines] = text.slice(0, end < 0 ? text.length : end).split('\r\n');
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  });
  const joined = new Map<string, string>();
  for (const [name, value] of headers)
    joined.set(name, joined.has(name) ? `${joined.get(name)},${value}` : value);
  return {
    status: Number(/^HTTP\/1\.[01] (\d+)/.exec(first)?.[1] ?? 0),
    headers: joined,
    body: end < 0 ? '' : text.slice(end + 4),
  };
}
