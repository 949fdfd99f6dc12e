import { createSocket, type Socket } from 'node:dgram';
import type { IPFamily } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { Responder } from './responder.ts';

/** Room for a burst: the kernel's default holds some 200 queries. The kernel caps it at net.core.rmem_max. */
const RECEIVE_BUFFER_BYTES = 4 << 20;

export type UdpBinding =
  | { readonly address: string; readonly port: number; readonly family: IPFamily }
  | { readonly fd: number; readonly family: IPFamily };

/** Answers queries over UDP until the socket is closed. Rejects with the system's error when it cannot bind. */
export async function listenUdp(binding: UdpBinding, respond: Responder, logger: Logger): Promise<Socket> {
  const socket = createSocket({
    type: binding.family === 'ipv4' ? 'udp4' : 'udp6',
    ipv6Only: binding.family === 'ipv6',
    // Addresses of clients are literals: answering needs no look-up, and so no turn of the event loop.
    lookup: (address, _options, done) => done(null, address, binding.family === 'ipv4' ? 4 : 6),
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject);
    const bound = () => {
      socket.off('error', reject);
      resolve();
    };
    if ('fd' in binding) socket.bind({ fd: binding.fd, exclusive: true }, bound);
    else socket.bind({ address: binding.address, port: binding.port, exclusive: true }, bound);
  });
  socket.setRecvBufferSize(RECEIVE_BUFFER_BYTES);
  // A client that went away (ICMP) or is out of reach concerns this answer only.
  socket.on('error', (error) => logger.debug({ error: messageOf(error) }, 'UDP socket'));
  let closed = false;
  socket.once('close', () => {
    closed = true;
  });
  const sent = (error: Error | null) => {
    if (error) logger.debug({ error: messageOf(error) }, 'could not send an answer');
  };
  socket.on('message', (bytes, { address, port }) => {
    if (port === 0) return;
    const response = respond(bytes, 'udp', binding.family);
    if (response === null) return;
    if (!(response instanceof Promise)) {
      socket.send(response, port, address, sent);
      return;
    }
    response.then((late) => {
      if (late && !closed) socket.send(late, port, address, sent);
    });
  });
  return socket;
}
