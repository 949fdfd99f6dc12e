import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { bindUdpIn, listenTcpIn } from '../kernel/netns.ts';
import { ROW_PORTS } from '../policy/policy-rows.ts';
import type { LocalPlace } from './fixture.ts';

/** Answers probes in all places on the ports of the rows; the result closes the servers. */
export async function serveProbes(places: Iterable<LocalPlace>): Promise<() => void> {
  const closers: (() => void)[] = [];
  const close = () => {
    for (const one of closers) one();
  };
  try {
    for (const { name, netns, addresses } of places) {
      for (const address of Object.values(addresses)) {
        for (const port of ROW_PORTS.TCP) {
          const server = createServer((socket) => {
            socket.on('error', () => socket.destroy());
            // `probeTcp` reads the answer of `fairlead echo`.
            socket.end(`HTTP/1.0 200 OK\r\n\r\nhello from ${name} (you are ${socket.remoteAddress})\n`);
          });
          server.listen({ fd: listenTcpIn(netns, address, port) });
          await once(server, 'listening');
          closers.push(() => server.close());
        }
        for (const port of ROW_PORTS.UDP) {
          const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
          const listening = once(socket, 'listening');
          socket.bind({ fd: bindUdpIn(netns, address, port) });
          await listening;
          socket.on('message', (_, from) =>
            socket.send(`${name} ${from.address}\n`, from.port, from.address),
          );
          closers.push(() => socket.close());
        }
      }
    }
  } catch (error) {
    close();
    throw error;
  }
  return close;
}
