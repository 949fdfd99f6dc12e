import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createApiServer } from '../src/apiserver/api-server.ts';
import { KINDS } from '../src/apiserver/kinds.ts';
import { createSchemaService } from '../src/apiserver/schema/service.ts';
import { getLink, openRouteSocket, setLink } from '../src/kernel/rtnetlink/links.ts';
import { kubeconfigText } from '../src/kube/kubeconfig-text.ts';
import type { Transport } from '../src/kube/transport.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { createAuthority, createSigningKey } from '../src/lib/pki.ts';

/** An API server in this process, listening on a loopback address of this process's network namespace. */
export interface ApiFixture {
  readonly transport: Transport;
  /** A folder for files, removed at the end. */
  readonly folder: string;
  /** Path of a kubeconfig with full rights. */
  readonly kubeconfig: string;
  /** Writes a file into the folder and returns its path. */
  file(name: string, text: string): string;
  close(): Promise<void>;
}

export async function startApi(options: { readonly serviceCidrs: readonly string[] }): Promise<ApiFixture> {
  const folder = mkdtempSync(join(tmpdir(), 'fairlead-bench-'));
  const file = (name: string, text: string) => {
    const path = join(folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  };
  const authority = createAuthority('bench', new Date());
  const serving = authority.issue({ commonName: 'apiserver', names: ['127.0.0.1'], usage: 'server' });
  const user = authority.issue({ commonName: 'bench', organizations: ['system:masters'], usage: 'client' });
  const tls = { ...serving, ca: authority.cert, clientCa: authority.cert };
  const server = createApiServer({
    dataFile: ':memory:',
    serviceCidrs: options.serviceCidrs,
    nodePorts: { first: 30000, last: 32767 },
    advertise: { addresses: [], port: 6443 },
    tls,
    nodeTls: tls,
    tokenKey: createSigningKey(),
    schema: createSchemaService({ kinds: KINDS }),
    tables: { columns: () => [], cells: () => [] },
    version: 'v1.36.0',
    clock: systemClock,
    random: Math.random,
    logger: silentLogger,
  });
  const socket = openRouteSocket();
  setLink(socket, getLink(socket, 'lo').index, { up: true });
  socket.close();
  const [port] = await server.listen([{ host: '127.0.0.1', port: 0 }]);
  const kubeconfig = file(
    'kubeconfig',
    kubeconfigText({
      name: 'bench',
      server: `https://127.0.0.1:${port}`,
      ca: authority.cert,
      cert: user.cert,
      key: user.key,
    }),
  );
  return {
    transport: server.transport,
    folder,
    kubeconfig,
    file,
    async close() {
      await server.close();
      rmSync(folder, { recursive: true });
    },
  };
}
