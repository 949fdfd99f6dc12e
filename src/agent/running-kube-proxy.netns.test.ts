import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { afterEach, before, test } from 'node:test';
import { SERVER_HEADER } from '../proxy/status-servers.ts';
import { findRunningKubeProxy } from './running-kube-proxy.ts';

// Each file of packet tests runs in its own network namespace, which is the node here. kube-proxy's answers are imitated.
const ANSWERS: Readonly<Record<string, string>> = {
  '/proxyMode': 'nftables',
  '/healthz': '{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T00:00:00Z"}',
};

const undo: (() => unknown)[] = [];
before(() => void execFileSync('ip', ['link', 'set', 'lo', 'up']));
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

/** Serves these paths on a port that the kernel chooses. */
async function serve(paths: readonly string[], headers: Record<string, string> = {}): Promise<number> {
  const server = createServer(({ url = '' }, response) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    response.statusCode = paths.includes(url) ? 200 : 404;
    response.end(paths.includes(url) ? ANSWERS[url] : 'not found');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  undo.push(() => new Promise((resolve) => server.close(resolve)));
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  return address.port;
}

function leaveRules(): void {
  execFileSync('nft', ['add', 'table', 'ip', 'kube-proxy']);
  undo.push(() => execFileSync('nft', ['delete', 'table', 'ip', 'kube-proxy']));
}

for (const path of Object.keys(ANSWERS))
  test(`a kube-proxy that serves ${path} on another port is found beside its rules`, async () => {
    const port = await serve([path]);
    assert.equal(await findRunningKubeProxy(), null, 'without its rules, no other port is asked');
    leaveRules();
    assert.equal(await findRunningKubeProxy(), `it answers on 127.0.0.1:${port}`);
  });

test('rules of a kube-proxy that has ended, beside other servers, one of them silent, and an agent', async () => {
  leaveRules();
  await serve(['/metrics']);
  await serve(Object.keys(ANSWERS), { server: SERVER_HEADER });
  const silent = createTcpServer(() => {});
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  undo.push(() => silent.close());
  assert.equal(await findRunningKubeProxy(), null);
});
