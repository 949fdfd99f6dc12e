import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { describeFlood, floodBetween, SLOW_SHARE } from './testing/flood.ts';

const QUESTIONS = 300;

let server: ChildProcess;
let port = 0;
const warnings: string[] = [];

// The server is a process of its own, as in a cluster.
before(async () => {
  server = fork(join(import.meta.dirname, 'testing/shop-server.ts'), [JSON.stringify(SLOW_SHARE)]);
  [port] = await once(server, 'message');
  server.on('message', (text) => warnings.push(String(text)));
});
after(() => server.kill());

test('30,000 queries of one client beyond its share are dropped, and all of another are answered', async (t) => {
  const report = await floodBetween(port, QUESTIONS);
  t.diagnostic(describeFlood(report));
  assert.equal(report.latencies.length, QUESTIONS);
  assert.ok(report.answered > 0, 'the flooding client has its share');
  assert.ok(report.answered < 2 * SLOW_SHARE.burst, `${report.answered} queries of the flood are answered`);
  assert.equal(warnings.length, 1, 'the flood is logged once');
  assert.match(warnings[0] ?? '', /^pod shop\/flood \(127\.0\.0\.5\) sends more DNS queries than its share/);
});
