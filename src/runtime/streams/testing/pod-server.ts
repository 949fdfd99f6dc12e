import { spawn } from 'node:child_process';
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { acceptPortForward } from '../port-forward.ts';
import { acceptRemoteCommand, type TerminalSize } from '../remote-command.ts';

/**
 * An API server with one pod, whose commands run as processes of this machine and whose ports are those of loopback.
 */
export interface PodServer {
  readonly port: number;
  /** "exec websocket", "portforward spdy/3.1" …: the requested upgrades. */
  readonly upgrades: string[];
  readonly sizes: TerminalSize[];
  /** Errors of refused requests. */
  readonly errors: unknown[];
  close(): Promise<void>;
}

const POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'p', namespace: 'default', uid: 'u' },
  spec: { nodeName: 'n', containers: [{ name: 'c', image: 'i' }] },
  status: { phase: 'Running' },
};

const ANSWERS: Readonly<Record<string, object>> = {
  '/api': { kind: 'APIVersions', versions: ['v1'] },
  '/apis': { kind: 'APIGroupList', apiVersion: 'v1', groups: [] },
  '/api/v1': {
    kind: 'APIResourceList',
    groupVersion: 'v1',
    resources: [
      {
        name: 'pods',
        singularName: 'pod',
        namespaced: true,
        kind: 'Pod',
        verbs: ['get', 'list'],
        shortNames: ['po'],
      },
    ],
  },
  '/api/v1/namespaces/default/pods/p': POD,
};

export async function startPodServer(): Promise<PodServer> {
  const sockets = new Set<Duplex>();
  const state = { upgrades: [] as string[], sizes: [] as TerminalSize[], errors: [] as unknown[] };
  const server = createServer((request, response) => {
    const answer = ANSWERS[new URL(request.url ?? '/', 'http://localhost').pathname];
    response.writeHead(answer ? 200 : 404, { 'content-type': 'application/json' });
    response.end(
      JSON.stringify(answer ?? { kind: 'Status', status: 'Failure', reason: 'NotFound', code: 404 }),
    );
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    const url = new URL(request.url ?? '/', 'http://localhost');
    const action = url.pathname.split('/').at(-1) ?? '';
    state.upgrades.push(`${action} ${request.headers.upgrade?.toLowerCase()}`);
    const served =
      action === 'portforward'
        ? acceptPortForward(request, socket, head, dial)
        : runCommand(request, socket, head, url.searchParams, state.sizes);
    served.catch((error: unknown) => state.errors.push(error));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    ...state,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function dial(port: number): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true }, () => resolve(socket));
    socket.on('error', reject);
  });
}

async function runCommand(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  query: URLSearchParams,
  sizes: TerminalSize[],
): Promise<void> {
  const asked = (name: string) => query.get(name) === 'true';
  const remote = await acceptRemoteCommand(request, socket, head, {
    stdin: asked('stdin'),
    stdout: asked('stdout'),
    stderr: asked('stderr'),
    tty: asked('tty'),
  });
  const [command = 'true', ...args] = query.getAll('command');
  const child = spawn(command, args, { stdio: 'pipe' });
  void (async () => {
    for await (const size of remote.resizes) sizes.push(size);
  })();
  remote.closed.addEventListener('abort', () => child.kill('SIGKILL'));
  // Ignores errors: a command may end before it has read all its input, or its client before it has read all the
  // output.
  const quietly = (way: Promise<void>) => way.catch(() => {});
  const outputs = [
    quietly(pipeline(child.stdout, remote.stdout)),
    quietly(pipeline(child.stderr, remote.stderr)),
  ];
  void quietly(pipeline(remote.stdin, child.stdin));
  const ended = await new Promise<{ code: number } | { error: string }>((resolve) => {
    child.on('error', (error) => resolve({ error: error.message }));
    child.on('exit', (code) => resolve({ code: code ?? 137 }));
  });
  if ('code' in ended) await Promise.all(outputs);
  await remote.finish(ended);
}
