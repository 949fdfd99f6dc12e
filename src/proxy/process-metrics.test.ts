import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { Registry } from 'prom-client';
import { httpTransport } from '../kube/transport.ts';
import { hostPort } from '../lib/address.ts';
import {
  addressSpaceLimit,
  createProcessMetrics,
  ipCounter,
  registerProcessFigures,
} from './process-metrics.ts';

const NETSTAT = 'TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 3 400 500\n';

for (const [field, count] of [
  ['InOctets', 400],
  ['OutOctets', 500],
  ['Missing', 0],
] as const) {
  test(`netstat: ${field} is ${count}`, () => assert.equal(ipCounter(NETSTAT, field), count));
}

for (const [name, line, limit] of [
  ['without a limit', 'Max address space         unlimited            unlimited            bytes', 2 ** 64],
  ['with one', 'Max address space         1048576              2097152              bytes', 1048576],
] as const) {
  test(`address space ${name}`, () =>
    assert.equal(addressSpaceLimit(`Max cpu time  unlimited\n${line}\n`), limit));
}

interface Row {
  readonly name: string;
  /** The API server's. Default: 127.0.0.1. */
  readonly ip?: string;
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: string;
  readonly code: string;
  /** The recorded size of the response; null: none. */
  readonly received: number | null;
}

const ROWS: readonly Row[] = [
  { name: 'a list', method: 'GET', path: '/api/v1/nodes', code: '200', received: 5 },
  { name: 'a watch', method: 'GET', path: '/api/v1/nodes?watch=true', code: '200', received: null },
  { name: 'a creation', method: 'POST', path: '/api/v1/events', body: '{"a":1}', code: '200', received: 5 },
  { name: 'a refusal', method: 'GET', path: '/forbidden', code: '403', received: 5 },
  { name: 'over IPv6', ip: '::1', method: 'GET', path: '/api/v1/nodes', code: '200', received: 5 },
];

for (const { name, ip = '127.0.0.1', method, path, body, code, received } of ROWS) {
  test(`requests to the API server: ${name}`, async () => {
    const server = createServer((request, response) => {
      response.statusCode = request.url === '/forbidden' ? 403 : 200;
      response.end('hello');
    }).listen(0, ip);
    await once(server, 'listening');
    const host = hostPort({ ip, port: (server.address() as AddressInfo).port });
    const registry = new Registry();
    const transport = httpTransport({ server: `http://${host}` }, createProcessMetrics(registry, 'v1.36.0'));
    try {
      const request = { method, path, headers: {}, ...(body === undefined ? {} : { body }) };
      for await (const chunk of (await transport(request)).body) assert.equal(String(chunk), 'hello');
      const text = await registry.metrics();
      const labels = `verb="${method}",host="${host}"`;
      const value = (line: string) =>
        text
          .split('\n')
          .find((one) => one.startsWith(`${line} `))
          ?.split(' ')[1];
      assert.equal(
        value(`rest_client_requests_total{code="${code}",host="${host}",method="${method}"}`),
        '1',
      );
      assert.equal(value(`rest_client_request_duration_seconds_count{${labels}}`), '1');
      assert.equal(value(`rest_client_rate_limiter_duration_seconds_sum{${labels}}`), '0');
      assert.equal(value(`rest_client_request_size_bytes_sum{${labels}}`), String(body?.length ?? 0));
      const size = value(`rest_client_response_size_bytes_sum{${labels}}`);
      assert.equal(size, received === null ? undefined : String(received));
    } finally {
      transport.close();
      server.close();
    }
  });
}

test('an idle process is not woken to measure its event loop: each scrape measures it', async () => {
  const registry = new Registry();
  registerProcessFigures(registry);
  const names = registry.getMetricsAsArray().map(({ name }) => name);
  assert.deepEqual(
    names.filter((name) => name.startsWith('nodejs_eventloop_lag')),
    ['nodejs_eventloop_lag_seconds'],
  );
  await registry.metrics();
  // It is set after the response.
  await new Promise((resolve) => setImmediate(resolve));
  const [lag] = (await registry.getSingleMetric('nodejs_eventloop_lag_seconds')?.get())?.values ?? [];
  assert.ok(lag && lag.value > 0);
});

test('processor time is that since the start of the process, however late the first scrape is', async () => {
  const registry = new Registry();
  const { user, system } = process.cpuUsage();
  registerProcessFigures(registry);
  registerProcessFigures(registry);
  const [seconds] = (await registry.getSingleMetric('process_cpu_seconds_total')?.get())?.values ?? [];
  assert.ok(seconds && seconds.value >= (user + system) / 1e6, `${seconds?.value} s`);
});
