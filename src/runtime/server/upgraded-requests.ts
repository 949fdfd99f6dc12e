import { STATUS_CODES as HTTP_TEXTS, type IncomingMessage } from 'node:http';
import { connect, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { openTcpIn } from '../../kernel/netns.ts';
import { messageOf } from '../../lib/errors.ts';
import { runAttachSession } from '../attach-session.ts';
import { runExecSession } from '../exec-session.ts';
import { acceptPortForward } from '../streams/port-forward.ts';
import { acceptRemoteCommand } from '../streams/remote-command.ts';
import type { RequestContext } from './request-context.ts';
import { parseRequestPath, requestError, STATUS_CODES, type StatusReason } from './request-path.ts';

/**
 * Serves exec, attach and port-forward: requests that become streams. Rejects with an error for the client before any
 * response is sent (see refuseUpgrade).
 */
export async function serveUpgrade(
  { options, pods, authorization }: RequestContext,
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): Promise<void> {
  await authorization.authorize(request, true);
  const { parts, path, query } = parseRequestPath(request.url);
  const [what, namespace = '', name = '', container = ''] = parts;
  if (what !== 'exec' && what !== 'attach' && what !== 'portForward') {
    throw requestError('NotFound', `there is no ${path} on this node`);
  }
  const served = pods.find(namespace, name);
  if (!served) throw requestError('NotFound', `pod ${namespace}/${name} is not on this node`);
  if (what === 'portForward') {
    const { pausePid } = served;
    if (pausePid === null) throw requestError('InternalError', `pod ${namespace}/${name} is not running`);
    const netns = served.pod.spec?.hostNetwork ? null : pausePid;
    await acceptPortForward(request, socket, head, (port) => dial(netns, port));
    return;
  }
  const runner = served.container(container);
  if (!runner?.isRunning) {
    throw requestError('InternalError', `container ${container} of pod ${namespace}/${name} is not running`);
  }
  const flag = (option: string) => ['1', 'true'].includes(query.get(option) ?? '');
  const tty = flag('tty');
  const streams = { stdin: flag('input'), stdout: flag('output'), stderr: flag('error') && !tty, tty };
  const command = query.getAll('command');
  if (what === 'exec' && command.length === 0) throw requestError('BadRequest', 'exec needs a command');
  const remote = await acceptRemoteCommand(request, socket, head, streams);
  try {
    if (what === 'exec') await runExecSession(runner.paths, runner.current, command, tty, remote);
    else await runAttachSession(runner.current, remote, () => runner.exitCode());
  } catch (error) {
    options.logger.warn({ pod: `${namespace}/${name}`, container }, `${what}: ${messageOf(error)}`);
    await remote.finish({ error: messageOf(error) });
  }
}

/** Answers an upgrade request with an error unless a response was already sent, and closes the connection. */
export function refuseUpgrade(socket: Duplex, reason: StatusReason, message: string): void {
  if (socket.destroyed || socket.writableEnded) return;
  const code = STATUS_CODES[reason];
  const body = `${message}\n`;
  socket.end(
    [
      `HTTP/1.1 ${code} ${HTTP_TEXTS[code]}`,
      'content-type: text/plain; charset=utf-8',
      `content-length: ${Buffer.byteLength(body)}`,
      'connection: close',
      '',
      body,
    ].join('\r\n'),
  );
}

/** Connects to a port on a pod's loopback, IPv4 first, then IPv6. */
async function dial(netns: number | null, port: number): Promise<Duplex> {
  try {
    return await dialAddress(netns, '127.0.0.1', port);
  } catch (error) {
    try {
      return await dialAddress(netns, '::1', port);
    } catch {
      // Most servers listen on IPv4: its error is more helpful.
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
