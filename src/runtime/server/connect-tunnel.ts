import type { IncomingMessage } from 'node:http';
import { connect, isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { messageOf } from '../../lib/errors.ts';

const CONNECT_MS = 10_000;
/** The group of the API server's own identity; nodes and other clients may not connect through this one. */
const PRIVILEGED_GROUP = 'system:masters';

/**
 * Connects the API server to an address that this node reaches (HTTP CONNECT): pods and Services have no route from
 * where the control plane runs. As upstream's konnectivity agent, for the same reason.
 */
export function serveConnect(request: IncomingMessage, socket: Duplex, head: Buffer): void {
  socket.on('error', () => socket.destroy());
  const refuse = (code: number, text: string) =>
    socket.end(
      `HTTP/1.1 ${code} ${text.replace(/[^\x20-\x7e]/g, ' ')}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`,
    );
  if (!isPrivileged(request.socket as TLSSocket)) {
    refuse(403, 'only the API server may connect through a node');
    return;
  }
  const [, bracketed, plain, port = ''] =
    /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(request.url ?? '') ?? [];
  const host = bracketed ?? plain ?? '';
  if (isIP(host) === 0 || Number(port) < 1 || Number(port) > 65535) {
    refuse(400, 'CONNECT needs an address and a port');
    return;
  }
  const target = connect({ host, port: Number(port), allowHalfOpen: true });
  const late = setTimeout(() => target.destroy(new Error('no connection within 10 s')), CONNECT_MS);
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

function isPrivileged(socket: TLSSocket): boolean {
  if (!socket.authorized) return false;
  const groups = socket.getPeerCertificate().subject?.O as string | string[] | undefined;
  return [groups ?? []].flat().includes(PRIVILEGED_GROUP);
}
