import type { TLSSocket } from 'node:tls';
import { connect } from 'node:tls';
import { controlFrame, SYN_STREAM } from '../../src/runtime/streams/spdy-frames.ts';
import { createHeaderEncoder } from '../../src/runtime/streams/spdy-headers.ts';
import type { Cluster } from './cluster.ts';

/** Clients of the API server that ask for output without end, and read no more than the head of the answer. */

/** What a client asks for: the path below a pod's, and the protocol over which the output comes. */
export interface DeafRequest {
  readonly path: string;
  readonly protocol: 'websocket' | 'spdy' | 'http';
}

export interface DeafClients {
  /** The first lines of the answers. */
  readonly answers: readonly string[];
  close(): void;
}

interface Config {
  readonly clusters: readonly [{ readonly cluster: Record<string, string> }];
  readonly users: readonly [{ readonly user: Record<string, string> }];
}

const PODS = '/api/v1/namespaces/default/pods';

/** Opens a connection for each request; resolves when all have the head of their answers. */
export async function openDeafClients(
  cluster: Cluster,
  requests: readonly DeafRequest[],
): Promise<DeafClients> {
  const config = JSON.parse(await cluster.ask('config', 'view', '--raw', '-o', 'json')) as Config;
  const { cluster: server, user } = { ...config.clusters[0], ...config.users[0] };
  const { hostname: host, port } = new URL(server['server'] ?? '');
  const decoded = (text: string | undefined) => Buffer.from(text ?? '', 'base64');
  const sockets: TLSSocket[] = [];
  const close = () => {
    for (const socket of sockets) socket.destroy();
  };
  const open = (request: DeafRequest) =>
    new Promise<string>((resolve, reject) => {
      const socket = connect({
        host: host.replace(/^\[|\]$/g, ''),
        port: Number(port),
        ca: decoded(server['certificate-authority-data']),
        cert: decoded(user['client-certificate-data']),
        key: decoded(user['client-key-data']),
        ALPNProtocols: ['http/1.1'],
      });
      sockets.push(socket);
      socket.on('error', reject);
      socket.write(headOf(request));
      socket.once('data', (chunk) => {
        socket.pause();
        socket.off('error', reject).on('error', () => {});
        if (request.protocol === 'spdy') socket.write(spdyStreams());
        resolve(chunk.toString('latin1').split('\r\n', 1)[0] ?? '');
      });
    });
  try {
    return { answers: await Promise.all(requests.map(open)), close };
  } catch (error) {
    close();
    throw error;
  }
}

function headOf({ path, protocol }: DeafRequest): string {
  const upgrade = {
    http: [],
    websocket: [
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
      'Sec-WebSocket-Protocol: v5.channel.k8s.io',
    ],
    spdy: ['Connection: Upgrade', 'Upgrade: SPDY/3.1', 'X-Stream-Protocol-Version: v4.channel.k8s.io'],
  }[protocol];
  const method = protocol === 'spdy' ? 'POST' : 'GET';
  const length = protocol === 'spdy' ? ['Content-Length: 0'] : [];
  return [`${method} ${PODS}/${path} HTTP/1.1`, 'Host: localhost', ...upgrade, ...length, '', ''].join(
    '\r\n',
  );
}

/** The streams of a command with output only. */
function spdyStreams(): Buffer {
  const encode = createHeaderEncoder();
  return Buffer.concat(
    ['error', 'stdout'].map((type, i) =>
      controlFrame(SYN_STREAM, 0, 2 * i + 1, 0, Buffer.alloc(2), encode(new Map([['streamtype', type]]))),
    ),
  );
}
