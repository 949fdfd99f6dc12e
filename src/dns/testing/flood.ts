import { execFile } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pause, systemClock } from '../../lib/clock.ts';
import { queryBytes } from './client.ts';

/** A name of the test cluster. */
export const NAME = 'web.shop.svc.cluster.local';
const FLOODER = '127.0.0.5';
const OTHER = '127.0.0.6';

/** Sends queries 10 ms apart, each once; returns the latencies of the answers in milliseconds, sorted. */
export async function latencies(port: number, questions: number): Promise<number[]> {
  const socket = createSocket('udp4');
  socket.bind(0, OTHER);
  await once(socket, 'listening');
  const sentAt = new Map<number, number>();
  const found: number[] = [];
  socket.on('message', (answer) => {
    const at = sentAt.get(answer.readUInt16BE(0));
    if (at !== undefined) found.push(performance.now() - at);
  });
  for (let id = 1; id <= questions; id++) {
    sentAt.set(id, performance.now());
    socket.send(queryBytes(`${NAME} A`, { id }), port, '127.0.0.1');
    await pause(systemClock, 10);
  }
  for (let i = 0; i < 50 && found.length < questions; i++) await pause(systemClock, 100);
  socket.close();
  return found.sort((a, b) => a - b);
}

/** Sends queries from another process and address; returns the number that was sent. */
export async function flood(port: number, perSecond: number, seconds: number): Promise<number> {
  const { stdout } = await promisify(execFile)(process.execPath, [
    join(import.meta.dirname, 'flooder.ts'),
    ...[FLOODER, String(port), NAME, String(perSecond), String(seconds)],
  ]);
  return Number(stdout);
}

/** Describes a flood and the latencies of the other client's answers. */
export const describeFlood = (sent: number, found: readonly number[], questions: number): string =>
  `${sent} queries of the flood; ${found.length} of ${questions} others answered, median ${found[found.length >> 1]?.toFixed(2)} ms, longest ${found.at(-1)?.toFixed(1)} ms`;
