import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { readBody } from '../kube/client.ts';
import type { Transport } from '../kube/transport.ts';
import { systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { connectToApi } from './api-connection.ts';

/** API servers on loopback, whose packets are dropped when their machine fails, in this file's network namespace. */

const folder = mkdtempSync(join(tmpdir(), 'api-connection-'));
const open: { close(): void }[] = [];
after(() => {
  for (const one of open) one.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Serves requests, and connects an agent to it. */
async function serve(listener: RequestListener): Promise<{ transport: Transport; port: number }> {
  const server: Server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const kubeconfig = join(folder, String(port));
  const config = {
    clusters: [{ name: 'a', cluster: { server: `http://127.0.0.1:${port}` } }],
    contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
    users: [{ name: 'a', user: {} }],
    'current-context': 'a',
  };
  writeFileSync(kubeconfig, JSON.stringify(config));
  const transport = connectToApi(
    { kubeconfig, server: null, servers: [] },
    { clock: systemClock, random: () => 0, logger: silentLogger },
  );
  open.push(transport, {
    close() {
      server.close();
      server.closeAllConnections();
    },
  });
  return { transport, port };
}

/** Drops all packets of a port, without a word, as a machine without power does. */
function failMachine(port: number): void {
  const table = `failed${port}`;
  open.push({ close: () => void execFileSync('nft', ['delete', 'table', 'ip', table]) });
  const rules = `table ip ${table} { chain input { type filter hook input priority 0; tcp dport ${port} drop; tcp sport ${port} drop; }; }`;
  execFileSync('nft', ['-f', '-'], { input: rules });
}

const get = async (transport: Transport, path: string): Promise<string> => {
  try {
    return await readBody((await transport({ method: 'GET', path, headers: {} })).body);
  } catch (error) {
    return messageOf(error);
  }
};

/** More than the limit of the kernel, and less than that of the transport (30 s), which has another message. */
const SLOW_MS = 12_000;

describe('a connection to an API server', { concurrency: true }, () => {
  test('its machine fails: a request on an open connection is ended by the kernel', async () => {
    const { transport, port } = await serve((_, response) => response.end('here'));
    assert.equal(await get(transport, '/x'), 'here');
    failMachine(port);
    assert.match(await get(transport, '/x'), /ETIMEDOUT$/);
  });

  test('its machine fails: an open watch is ended by the kernel', async () => {
    const { transport, port } = await serve((_, response) => response.write('begun'));
    const { body } = await transport({ method: 'GET', path: '/x', headers: {} });
    failMachine(port);
    await assert.rejects(readBody(body), /ETIMEDOUT|aborted/);
  });

  test('a server that takes long for its answer is waited for', async () => {
    const { transport } = await serve((_, response) => {
      setTimeout(() => response.end('late'), SLOW_MS);
    });
    assert.equal(await get(transport, '/x'), 'late');
  });

  test('a watch without events goes on', async () => {
    const { transport } = await serve((_, response) => {
      response.write('begun ');
      setTimeout(() => response.end('event'), SLOW_MS);
    });
    assert.equal(await get(transport, '/x'), 'begun event');
  });
});
