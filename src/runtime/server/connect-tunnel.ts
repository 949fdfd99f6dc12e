import type { IncomingMessage } from 'node:http';
import { connect, isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { requireMaster } from './client-authorization.ts';
import { reasonOf, STATUS_CODES } from './request-path.ts';

const CONNECT_MS = 10_000;

/**
 * Connects the API server to an address that this node reaches (HTTP CONNECT): the control plane has no route to pods
 * and Services. Like upstream's konnectivity agent, for the same reason.
 */
export function serveConnect(request: IncomingMessage, socket: Duplex, head: Buffer): void {
  socket.on('error', () => socket.destroy());
  const refuse = (code: number, text: string) =>
    socket.end(
      `HTTP/1.1 ${code} ${text.replace(/[^\x20-\x7e]/g, ' ')}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`,
    );
  try {
    requireMaster(request.socket as TLSSocket);
  } catch (error) {
    refuse(STATUS_CODES[reasonOf(error)], messageOf(error));
    return;
  }
  const [, bracketed, plain, port = ''] =
    /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(request.url ?? '') ?? [];
  const host = bracketed ?? plain ?? '';
  if (isIP(host) === 0 || Number(port) < 1 || Number(port) > 65535) {
    refuse(400, 'CONNECT requires an address and a port');
    return;
  }
  const target = connect({ host, port: Number(port), allowHalfOpen: true });
  const late = setTimeout(() => target.destroy(lateness(`${host} port ${port}`)), CONNECT_MS);
  let connected = false;
  target.on('connect', () => {
    connected = true;
    clearTimeout(late);
    target.setNoDelay(true);
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    if (head.length > 0) target.write(head);
    target.pipe(socket);
    socket.pipe(target);
  });
  target.on('error', (error) => {
    clearTimeout(late);
    if (connected) socket.destroy();
    else refuse(502, messageOf(error));
  });
  target.on('close', () => {
    if (connected) socket.destroy();
  });
  socket.on('close', () => target.destroy());
}

const lateness = (object: string): FairleadError =>
  new FairleadError(`no connection to ${object} within ${CONNECT_MS / 1000} s`, {
    op: 'open tunnel',
    code: 'ETIMEDOUT',
    object,
    hint: 'check that a process of the pod listens there, and that network policies allow the node',
  });
