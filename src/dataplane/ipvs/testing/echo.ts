import { createServer, Socket } from 'node:net';
import { listenTcpIn, openTcpIn } from '../../../kernel/netns.ts';
import type { Place, Topology } from '../../testing/topology.ts';

/** Answers on a TCP port of a place with the place's name, then echoes what it receives. */
export function serveEcho(topology: Topology, place: Place, port: number): { close(): void } {
  /** Clients may have ended while no rule translated their last packets. */
  const accepted = new Set<Socket>();
  const server = createServer((socket) => {
    accepted.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => accepted.delete(socket));
    socket.write(`${place}\n`);
    socket.pipe(socket);
  });
  server.listen({ fd: listenTcpIn(topology.namespace(place), '0.0.0.0', port) });
  return {
    close() {
      server.close();
      for (const socket of accepted) socket.destroy();
    },
  };
}

/** A connection to an echo server through a Service. */
export interface EchoConnection {
  /** The server that answers; an errno code if none does. */
  readonly place: Place;
  /** Sends a text. Resolves to true if it comes back. */
  says(text: string): Promise<boolean>;
  /** Closes the connection with FIN. */
  end(): Promise<void>;
  destroy(): void;
}

export async function connectEcho(
  topology: Topology,
  from: Place,
  address: string,
  port: number,
): Promise<EchoConnection> {
  const socket = new Socket({ fd: openTcpIn(topology.namespace(from), 'ipv4') });
  let received = '';
  let failure: string | null = null;
  socket.on('data', (chunk) => {
    received += chunk;
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    failure = error.code ?? 'error';
  });
  const line = async () => {
    for (let i = 0; i < 300 && !received.includes('\n') && failure === null; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const [first = ''] = received.split('\n', 1);
    received = received.slice(first.length + 1);
    return failure ?? first;
  };
  socket.connect(port, address);
  const place = await line();
  return {
    place: place as Place,
    async says(text) {
      socket.write(`${text}\n`);
      return (await line()) === text;
    },
    async end() {
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.end();
      await closed;
    },
    destroy: () => void socket.destroy(),
  };
}
