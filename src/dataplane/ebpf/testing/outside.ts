import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, Socket } from 'node:net';
import { bindUdpIn, listenTcpIn, openTcpIn } from '../../../kernel/netns.ts';

const isIpv6 = (address: string) => address.includes(':');
const wildcardFor = (address: string) => (isIpv6(address) ? '::' : '0.0.0.0');

/** Sends back whatever comes over TCP, at one address of a namespace. */
export function echoIn(namespace: string, address: string, port: number): { close(): void } {
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => open.delete(socket));
    socket.pipe(socket);
  });
  server.listen({ fd: listenTcpIn(namespace, address, port) });
  return {
    close() {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

/** A connection from a namespace: what is sent comes back. */
export interface EchoConnection {
  /** Sends so many bytes and waits until as many have come back. */
  exchange(bytes: number): Promise<void>;
  readonly port: number;
  end(): Promise<void>;
  destroy(): void;
}

export async function connectFrom(namespace: string, address: string, port: number): Promise<EchoConnection> {
  const socket = new Socket({ fd: openTcpIn(namespace, isIpv6(address) ? 'ipv6' : 'ipv4') });
  socket.on('error', () => {});
  socket.connect(port, address);
  await once(socket, 'connect');
  return {
    exchange: (bytes) =>
      new Promise((resolve, reject) => {
        let left = bytes;
        const lost = () => reject(new Error('the connection has ended'));
        const take = (chunk: Buffer) => {
          left -= chunk.length;
          if (left > 0) return;
          socket.off('data', take);
          socket.off('close', lost);
          resolve();
        };
        socket.on('data', take);
        socket.once('close', lost);
        socket.write(Buffer.alloc(bytes, 'x'));
      }),
    get port() {
      return socket.localPort ?? 0;
    },
    async end() {
      const closed = once(socket, 'close');
      socket.end();
      await closed;
    },
    destroy: () => socket.destroy(),
  };
}

/** A UDP socket of a namespace; `port` 0: any. */
export async function udpIn(namespace: string, address: string, port: number): Promise<UdpSocket> {
  const socket = createSocket(isIpv6(address) ? 'udp6' : 'udp4');
  const fd = bindUdpIn(namespace, port === 0 ? wildcardFor(address) : address, port);
  await new Promise<void>((resolve) => socket.bind({ fd, exclusive: true }, resolve));
  return socket;
}
