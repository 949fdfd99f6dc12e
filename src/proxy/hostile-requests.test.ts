import assert from 'node:assert/strict';
import { get } from 'node:http';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { Registry } from 'prom-client';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { freePort } from '../lib/testing/free-ports.ts';
import { sendHostileRequests } from '../lib/testing/hostile-http.ts';
import { testNode } from '../service/testing/test-node.ts';
import { createHealthCheckServers } from './health-check-servers.ts';
import { startStatusServers } from './status-servers.ts';

/** Returns the status of a GET; null: no answer. */
function status(port: number, path: string): Promise<number | null> {
  return new Promise((resolve) => {
    get({ host: '127.0.0.1', port, path, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? null);
    }).on('error', () => resolve(null));
  });
}

async function goesOnAnswering(port: number, path: string): Promise<void> {
  await eventually(
    () => status(port, path),
    (code) => code === 200,
  );
  let client = 2;
  // Each of its own address: one has a share.
  const open = () =>
    connect({ port, host: '127.0.0.1', localAddress: `127.0.${client >> 8}.${client++ & 255}` });
  await sendHostileRequests(open, {
    words: ['healthz', 'livez', 'metrics', 'proxyMode', 'configz', 'statusz', 'flagz'],
  });
  assert.equal(await status(port, path), 200);
}

describe('no request stops a server of the agent', () => {
  test('its health and metrics ports', async () => {
    const [healthz, metrics] = [await freePort(), await freePort()];
    const clock = manualClock(1_000_000);
    const servers = startStatusServers({
      healthz: `127.0.0.1:${healthz}`,
      metrics: `127.0.0.1:${metrics}`,
      registry: new Registry(),
      clock,
      logger: silentLogger,
      health: () => ({
        healthy: true,
        live: true,
        lastUpdated: clock.now(),
        families: ['ipv4'],
        problem: null,
      }),
      node: () => undefined,
      mode: () => 'nftables',
      configz: {},
      flags: {},
      version: '1.36.0',
      startedAt: 0,
      onBindFailure: null,
    });
    try {
      await goesOnAnswering(healthz, '/healthz');
      await goesOnAnswering(healthz, '/livez');
      await goesOnAnswering(metrics, '/metrics');
      await goesOnAnswering(metrics, '/metrics/slis');
    } finally {
      servers.close();
    }
  });

  test('the health check node port of a Service', async () => {
    const port = await freePort();
    const servers = createHealthCheckServers({
      logger: silentLogger,
      isProxyHealthy: () => true,
      onFailure: (_, error) => assert.fail(error),
    });
    const check = { namespace: 'shop', name: 'web', port, localEndpoints: 1 };
    servers.update(new Map([['shop/web', check]]), testNode());
    try {
      await goesOnAnswering(port, '/any');
    } finally {
      servers.close();
    }
  });
});
