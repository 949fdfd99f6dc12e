import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { DEFAULT_SHARE } from '../source-share.ts';
import { queryBytes } from './client.ts';

/** A name of the test cluster. */
const NAME = 'web.shop.svc.cluster.local';
const FLOODER = '127.0.0.5';
const OTHER = '127.0.0.6';
/** Fewer datagrams than the smallest receive buffer and the kernel's backlog of a processor hold. */
const QUERIES_OF_A_ROUND = 100;
const ANSWER_MS = 60_000;

/**
 * A share that is used up however long a run takes: each client has its burst, and next to nothing afterwards. The burst is
 * that of the default; the rate is a multiple of three, because the kernel lets pass a third more.
 */
export const SLOW_SHARE = { ...DEFAULT_SHARE, perSecond: 3 };

export interface FloodReport {
  /** Queries of the flooding client, and their answers. */
  readonly sent: number;
  readonly answered: number;
  /** Milliseconds from each question of the other client to its answer, sorted. */
  readonly latencies: readonly number[];
}

/**
 * Sends the queries of a flooding client, and after each hundred a question of another one; waits for its answer before it
 * goes on, so that no buffer overflows on a slow machine. Throws if a question has no answer within a minute.
 */
export async function floodBetween(port: number, questions: number): Promise<FloodReport> {
  const flooder = await openClient(FLOODER, port);
  const other = await openClient(OTHER, port);
  const query = queryBytes(`${NAME} A`);
  let answered = 0;
  flooder.socket.on('message', () => {
    answered++;
  });
  const latencies: number[] = [];
  try {
    for (let id = 1; id <= questions; id++) {
      await Promise.all(Array.from({ length: QUERIES_OF_A_ROUND }, () => flooder.send(query)));
      const begin = performance.now();
      const answer = once(other.socket, 'message', { signal: AbortSignal.timeout(ANSWER_MS) });
      await other.send(queryBytes(`${NAME} A`, { id }));
      const [bytes] = (await answer) as [Buffer];
      if (bytes.readUInt16BE(0) !== id) throw new Error(`question ${id} has the answer of another one`);
      latencies.push(performance.now() - begin);
    }
  } finally {
    flooder.socket.close();
    other.socket.close();
  }
  return { sent: questions * QUERIES_OF_A_ROUND, answered, latencies: latencies.sort((a, b) => a - b) };
}

async function openClient(
  address: string,
  port: number,
): Promise<{ readonly socket: Socket; readonly send: (bytes: Buffer) => Promise<unknown> }> {
  const socket = createSocket('udp4');
  socket.bind(0, address);
  await once(socket, 'listening');
  socket.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  return {
    socket,
    send: promisify((bytes: Buffer, done: (error: Error | null) => void) => socket.send(bytes, done)),
  };
}

/** Describes a flood and the latencies of the other client's answers. */
export const describeFlood = ({ sent, answered, latencies }: FloodReport): string =>
  `${answered} of ${sent} queries of the flood answered; the other client's median ${latencies[latencies.length >> 1]?.toFixed(2)} ms, longest ${latencies.at(-1)?.toFixed(1)} ms`;
