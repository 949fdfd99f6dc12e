import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';

/** Returns different ports of 127.0.0.1 that were free a moment ago. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  return await Promise.all(
    servers.map(async (server) => {
      const { port } = server.address() as AddressInfo;
      server.close();
      await once(server, 'close');
      return port;
    }),
  );
}

/** Returns a port of 127.0.0.1 that was free a moment ago. */
export const freePort = async (): Promise<number> => (await freePorts(1))[0] ?? 0;
