import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Registry } from 'prom-client';
import { describeFlood, flood, latencies } from '../dns/testing/flood.ts';
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

// The server is a process of its own, so that the clients measure it and not the test.
before(async () => {
  server = fork(join(import.meta.dirname, '../dns/testing/shop-server.ts'));
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
  startDnsLimit(context, port)(['127.0.0.1']);
});
after(async () => {
  server.kill();
  await close();
  removeDnsLimit();
});

test('30,000 queries a second of one client: most do not reach the server, and all of another are answered', async (t) => {
  const flooding = flood(port, 30_000, 4);
  const found = await latencies(port, QUESTIONS);
  const sent = await flooding;
  const limited = Number(
    /^fairlead_dns_limited_packets_total (\d+)$/m.exec(await registry.metrics())?.[1] ?? 0,
  );
  t.diagnostic(`${describeFlood(sent, found, QUESTIONS)}; ${limited} dropped by the kernel`);
  assert.equal(found.length, QUESTIONS);
  assert.ok(limited > 0);
  assert.equal(warnings.length, 1, 'the server itself sees the flood, and names the client once');
  assert.match(warnings[0] ?? '', /^pod shop\/flood \(127\.0\.0\.5\) sends more DNS queries than its share/);
});
