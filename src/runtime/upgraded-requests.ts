import type { IncomingMessage } from 'node:http';
import { connect, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { openTcpIn } from '../kernel/netns.ts';
import { messageOf } from '../lib/errors.ts';
import { runAttachSession } from './attach-session.ts';
import { runExecSession } from './exec-session.ts';
import type { KubeletOptions } from './options.ts';
import type { PodWorker } from './pod-worker.ts';
import { acceptPortForward } from './streams/port-forward.ts';
import { acceptRemoteCommand } from './streams/remote-command.ts';

/** Serves exec, attach and port-forward: requests that turn into streams. */
export async function serveUpgrade(
  options: KubeletOptions,
  find: (namespace: string, name: string) => PodWorker | undefined,
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): Promise<void> {
  socket.on('error', () => socket.destroy());
  const refuse = (status: string, message: string) => {
    socket.end(
      `HTTP/1.1 ${status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(message) + 1}\r\nconnection: close\r\n\r\n${message}\n`,
    );
  };
  if (!(socket as TLSSocket).authorized)
    return refuse('401 Unauthorized', 'a certificate of the cluster is needed');
  const url = new URL(request.url ?? '/', 'https://node');
  const [what, namespace = '', name = '', container = ''] = url.pathname
    .slice(1)
    .split('/')
    .map(decodeURIComponent);
  const worker = find(namespace, name);
  if (!worker) return refuse('404 Not Found', `pod ${namespace}/${name} is not on this node`);
  if (what === 'portForward') {
    const { pausePid } = worker;
    if (pausePid === null)
      return refuse('500 Internal Server Error', `pod ${namespace}/${name} is not running`);
    const netns = worker.pod.spec?.hostNetwork ? null : pausePid;
    await acceptPortForward(request, socket, head, (port) => dial(netns, port));
    return;
  }
  if (what !== 'exec' && what !== 'attach')
    return refuse('404 Not Found', `there is no ${url.pathname} here`);
  const runner = worker.container(container);
  if (!runner?.isRunning) {
    return refuse(
      '500 Internal Server Error',
      `container ${container} of pod ${namespace}/${name} is not running`,
    );
  }
  const asked = (flag: string) => ['1', 'true'].includes(url.searchParams.get(flag) ?? '');
  const tty = asked('tty');
  const streams = { stdin: asked('input'), stdout: asked('output'), stderr: asked('error') && !tty, tty };
  const command = url.searchParams.getAll('command');
  if (what === 'exec' && command.length === 0) return refuse('400 Bad Request', 'exec needs a command');
  const remote = await acceptRemoteCommand(request, socket, head, streams);
  try {
    if (what === 'exec') await runExecSession(runner.paths, runner.current, command, tty, remote);
    else await runAttachSession(runner.current, remote, () => runner.exitCode());
  } catch (error) {
    options.logger.warn({ pod: `${namespace}/${name}`, container }, `${what}: ${messageOf(error)}`);
    await remote.finish({ error: messageOf(error) });
  }
}

/** Connects to a port on a pod's loopback, whichever family listens there. */
async function dial(netns: number | null, port: number): Promise<Duplex> {
  try {
    return await dialAddress(netns, '127.0.0.1', port);
  } catch (error) {
    try {
      return await dialAddress(netns, '::1', port);
    } catch {
      // The first says more: most servers listen on IPv4.
      throw error;
    }
  }
}

function dialAddress(netns: number | null, host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket =
      netns === null
        ? connect({ host, port, allowHalfOpen: true })
        : new Socket({
            fd: openTcpIn({ pid: netns }, host.includes(':') ? 'ipv6' : 'ipv4'),
            allowHalfOpen: true,
          }).connect(port, host);
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(socket);
    });
  });
}
