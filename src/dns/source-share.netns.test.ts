import assert from 'node:assert/strict';
import { type ChildProcess, execFile, fork } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { pause, systemClock } from '../lib/clock.ts';
import { queryBytes } from './testing/client.ts';

const NAME = 'web.shop.svc.cluster.local';
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

/** Sends queries 10 ms apart, each once; returns the latencies of the answers in milliseconds, sorted. */
async function latencies(): Promise<number[]> {
  const socket = createSocket('udp4');
  socket.bind(0, '127.0.0.6');
  await once(socket, 'listening');
  const sentAt = new Map<number, number>();
  const found: number[] = [];
  socket.on('message', (answer) => {
    const at = sentAt.get(answer.readUInt16BE(0));
    if (at !== undefined) found.push(performance.now() - at);
  });
  for (let id = 1; id <= QUESTIONS; id++) {
    sentAt.set(id, performance.now());
    socket.send(queryBytes(`${NAME} A`, { id }), port, '127.0.0.1');
    await pause(systemClock, 10);
  }
  for (let i = 0; i < 50 && found.length < QUESTIONS; i++) await pause(systemClock, 100);
  socket.close();
  return found.sort((a, b) => a - b);
}

const flood = (perSecond: number, seconds: number) =>
  promisify(execFile)(process.execPath, [
    join(import.meta.dirname, 'testing/flooder.ts'),
    ...['127.0.0.5', String(port), NAME, String(perSecond), String(seconds)],
  ]);

test('30,000 queries a second of one client: all queries of another are answered', async (t) => {
  const flooding = flood(30_000, 4);
  const found = await latencies();
  const { stdout } = await flooding;
  t.diagnostic(
    `${stdout.trim()} queries of the flood; ${found.length} of ${QUESTIONS} others answered, median ${found[found.length >> 1]?.toFixed(2)} ms, longest ${found.at(-1)?.toFixed(1)} ms`,
  );
  assert.equal(found.length, QUESTIONS);
  assert.equal(warnings.length, 1, 'the flood is logged once');
  assert.match(warnings[0] ?? '', /^pod shop\/flood \(127\.0\.0\.5\) sends more DNS queries than its share/);
});
