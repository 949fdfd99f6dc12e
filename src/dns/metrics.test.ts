import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Registry } from 'prom-client';
import { createDnsMetrics, type ServedQuery } from './metrics.ts';

const QUERY: ServedQuery = {
  transport: 'udp',
  family: 'ipv4',
  type: 1,
  dnssecOk: false,
  rcode: 0,
  zone: 'cluster.local.',
  plugin: 'kubernetes',
  requestBytes: 40,
  responseBytes: 600,
  seconds: 0.0003,
};

async function lines(queries: readonly Partial<ServedQuery>[], name: string): Promise<string[]> {
  const registry = new Registry();
  const metrics = createDnsMetrics(registry);
  for (const query of queries) metrics.served({ ...QUERY, ...query });
  // Values that were already read must not count twice.
  await registry.metrics();
  const text = await registry.metrics();
  return text.split('\n').filter((line) => line.startsWith(name));
}

test('queries are counted by their labels', async () => {
  const found = await lines(
    [{}, {}, { family: 'ipv6', type: 28 }, { transport: 'tcp' }],
    'coredns_dns_requests_total',
  );
  const labels = 'server="dns://:53",zone="cluster.local.",view=""';
  assert.deepEqual(found.sort(), [
    `coredns_dns_requests_total{${labels},proto="tcp",family="1",type="A"} 1`,
    `coredns_dns_requests_total{${labels},proto="udp",family="1",type="A"} 2`,
    `coredns_dns_requests_total{${labels},proto="udp",family="2",type="AAAA"} 1`,
  ]);
});

test('a client that queries all possible types creates one series', async () => {
  const queries = Array.from({ length: 5000 }, (_, i) => ({ type: 60_000 + i }));
  const found = await lines(queries, 'coredns_dns_requests_total');
  assert.equal(found.length, 1);
  assert.match(found[0] ?? '', /type="other"\} 5000$/);
});

test('durations and sizes are counted in their buckets, which are cumulative', async () => {
  const queries = [{ seconds: 0.0001 }, { seconds: 0.00025 }, { seconds: 0.0003 }, { seconds: 100 }];
  const found = await lines(queries, 'coredns_dns_request_duration_seconds');
  const count = (le: string) =>
    found
      .find((line) => line.includes(`le="${le}"`))
      ?.split(' ')
      .at(-1);
  assert.deepEqual([count('0.00025'), count('0.0005'), count('8.192'), count('+Inf')], ['2', '3', '3', '4']);
  assert.ok(found.some((line) => /_sum\{.*\} 100\.00065/.test(line)));
  assert.ok(
    found.some((line) => /_count\{server="dns:\/\/:53",zone="cluster.local.",view=""\} 4/.test(line)),
  );
});
