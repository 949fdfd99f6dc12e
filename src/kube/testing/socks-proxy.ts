import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { readExactly } from '../../lib/read-exactly.ts';

/** A SOCKS 5 proxy on loopback (RFC 1928) that reaches one server, whatever it is asked for. */
export interface SocksProxy {
  readonly port: number;
  /** The targets that clients asked for: "api.example:6443". */
  readonly asked: string[];
  close(): void;
}

export interface SocksProxyOptions {
  /** The port on loopback that all connections lead to. */
  readonly target: number;
  /** "name:password", which clients must have; null: none. */
  readonly password?: string | null;
  /** The reply to CONNECT; 0: the connection is made. */
  readonly reply?: number;
  /** Sends replies byte by byte. */
  readonly isSlow?: boolean;
}

export async function startSocksProxy(options: SocksProxyOptions): Promise<SocksProxy> {
  const asked: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    serve(socket, options, asked).catch(() => socket.destroy());
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    asked,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

async function serve(
  socket: Socket,
  { target, password = null, reply = 0, isSlow = false }: SocksProxyOptions,
  asked: string[],
): Promise<void> {
  const read = async (length: number): Promise<Buffer> => {
    const bytes = await readExactly(socket, length);
    if (bytes === null) throw new Error('the client ended the connection');
    return bytes;
  };
  const write = async (...bytes: number[]) => {
    if (!isSlow) return socket.write(Buffer.from(bytes));
    for (const byte of bytes) {
      socket.write(Buffer.of(byte));
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    return true;
  };
  const [, count = 0] = await read(2);
  const methods = await read(count);
  const method = password === null ? 0 : 2;
  if (!methods.includes(method)) {
    await write(5, 0xff);
    return void socket.end();
  }
  await write(5, method);
  if (password !== null) {
    await read(1);
    const words: string[] = [];
    for (let i = 0; i < 2; i++) words.push(String(await read((await read(1))[0] ?? 0)));
    const isRight = words.join(':') === password;
    await write(1, isRight ? 0 : 1);
    if (!isRight) return void socket.end();
  }
  const [, , , type = 0] = await read(4);
  const host =
    type === 3
      ? String(await read((await read(1))[0] ?? 0))
      : [...(await read(type === 1 ? 4 : 16))].join('.');
  asked.push(`${host}:${(await read(2)).readUInt16BE(0)}`);
  // With a name as the proxy's own address, whose length clients have to read.
  if (reply !== 0) {
    await write(5, reply, 0, 3, 2, 0x61, 0x62, 0, 0);
    return void socket.end();
  }
  const upstream = connect(target, '127.0.0.1');
  upstream.on('error', () => socket.destroy());
  socket.on('close', () => upstream.destroy());
  await once(upstream, 'connect');
  await write(5, 0, 0, isSlow ? 3 : 1, ...(isSlow ? [2, 0x61, 0x62] : [127, 0, 0, 1]), 0, 80);
  upstream.pipe(socket).pipe(upstream);
}
