import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { describeFlood, flood, latencies } from './testing/flood.ts';

const QUESTIONS = 300;

let server: ChildProcess;
let port = 0;
const warnings: string[] = [];

// The server is a process of its own, so that the clients measure it and not the test.
before(async () => {
  server = fork(join(import.meta.dirname, 'testing/shop-server.ts'));
  [port] = await once(server, 'message');
  server.on('message', (text) => warnings.push(String(text)));
});
after(() => server.kill());

test('30,000 queries a second of one client: all queries of another are answered', async (t) => {
  const flooding = flood(port, 30_000, 4);
  const found = await latencies(port, QUESTIONS);
  t.diagnostic(describeFlood(await flooding, found, QUESTIONS));
  assert.equal(found.length, QUESTIONS);
  assert.equal(warnings.length, 1, 'the flood is logged once');
  assert.match(warnings[0] ?? '', /^pod shop\/flood \(127\.0\.0\.5\) sends more DNS queries than its share/);
});
