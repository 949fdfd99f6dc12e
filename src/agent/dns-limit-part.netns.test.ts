import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Registry } from 'prom-client';
import { describeFlood, floodBetween, SLOW_SHARE } from '../dns/testing/flood.ts';
import { systemClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { removeDnsLimit } from '../network/dns-limit.ts';
import { startDnsLimit } from './dns-limit-part.ts';

const QUESTIONS = 300;

let server: ChildProcess;
let port = 0;
const warnings: string[] = [];
const registry = new Registry();
let close: () => unknown = () => {};

// The server is a process of its own, as in a cluster.
before(async () => {
  server = fork(join(import.meta.dirname, '../dns/testing/shop-server.ts'), [JSON.stringify(SLOW_SHARE)]);
  [port] = await once(server, 'message');
  server.on('message', (text) => warnings.push(String(text)));
  const context = {
    clock: systemClock,
    logger: silentLogger,
    registry,
    onClose: (action: () => unknown) => {
      close = action;
    },
  };
  startDnsLimit(context, port, SLOW_SHARE)(['127.0.0.1']);
});
after(async () => {
  server.kill();
  await close();
  removeDnsLimit();
});

test('30,000 queries of one client: most do not reach the server, and all of another are answered', async (t) => {
  const report = await floodBetween(port, QUESTIONS);
  const limited = Number(
    /^fairlead_dns_limited_packets_total (\d+)$/m.exec(await registry.metrics())?.[1] ?? 0,
  );
  t.diagnostic(`${describeFlood(report)}; ${limited} dropped by the kernel`);
  assert.equal(report.latencies.length, QUESTIONS);
  assert.ok(limited > report.sent / 2, `the kernel dropped ${limited} of ${report.sent} queries`);
  assert.equal(warnings.length, 1, 'the server itself sees the flood, and names the client once');
  assert.match(warnings[0] ?? '', /^pod shop\/flood \(127\.0\.0\.5\) sends more DNS queries than its share/);
});
