import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import { afterRunning, systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { decodeMessage } from './decode.ts';
import { encodeQuery } from './encode.ts';
import { type Message, type Question, RCODE } from './message.ts';
import type { UpstreamAddress } from './resolv-conf.ts';

/**
 * Messages from the upstream's address to a query's port that do not answer it: somebody guesses its id. The port is random, too, so
 * that few come by chance.
 */
const MAX_WRONG = 8;
/** The UDP size announced to upstreams: fits the smallest common path (DNS Flag Day 2020). */
const UDP_SIZE = 1232;

export interface OutgoingQuery {
  readonly question: Question;
  readonly dnssecOk: boolean;
  readonly checkingDisabled: boolean;
}

/**
 * Queries one upstream over UDP, and over TCP after a truncated answer or several forged ones. Each query uses a new socket, so that its port
 * is random (RFC 5452), and an ICMP error is reported at once. Rejects with the system's error, or FairleadError
 * "ETIMEDOUT" after `timeoutMs`.
 */
export async function exchange(
  upstream: UpstreamAddress,
  query: OutgoingQuery,
  timeoutMs: number,
  random: () => number,
): Promise<Message> {
  let edns = true;
  for (;;) {
    const id = Math.floor(random() * 0x10000);
    const bytes = encodeQuery(id, query.question, {
      authenticData: query.dnssecOk,
      checkingDisabled: query.checkingDisabled,
      edns: edns ? { udpSize: UDP_SIZE, version: 0, dnssecOk: query.dnssecOk } : null,
    });
    const reply = await exchangeUdp(upstream, query, id, bytes, timeoutMs);
    if (reply === null) return exchangeTcp(upstream, query, id, bytes, timeoutMs);
    // An upstream without EDNS support (RFC 6891, 7): repeat the query without EDNS.
    if (edns && !reply.edns && (reply.rcode === RCODE.FORMERR || reply.rcode === RCODE.NOTIMP)) {
      edns = false;
      continue;
    }
    return reply.truncated ? exchangeTcp(upstream, query, id, bytes, timeoutMs) : reply;
  }
}

/** A reply is accepted only if it repeats the id and the question; others may be forged or late. */
function readReply(bytes: Uint8Array, query: OutgoingQuery, id: number): Message | null {
  // First, as it costs least: forged replies may be many and large.
  if (bytes.length < 2 || ((bytes[0] ?? 0) << 8) + (bytes[1] ?? 0) !== id) return null;
  const reply = decodeMessage(bytes);
  const question = reply?.questions[0];
  if (!reply?.response || reply.questions.length !== 1 || !question) return null;
  const { name, type } = query.question;
  if (question.type !== type || question.class !== query.question.class) return null;
  return question.name.toLowerCase() === name.toLowerCase() ? reply : null;
}

/** Resolves to null if the upstream must be asked over TCP, where an answer cannot be forged from elsewhere. */
function exchangeUdp(
  upstream: UpstreamAddress,
  query: OutgoingQuery,
  id: number,
  bytes: Buffer,
  timeoutMs: number,
): Promise<Message | null> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(isIPv6(upstream.address) ? 'udp6' : 'udp4');
    let finished = false;
    let wrong = 0;
    const finish = (settle: () => void) => {
      if (finished) return;
      finished = true;
      cancelTimeout();
      socket.removeAllListeners();
      socket.on('error', () => {});
      socket.close();
      settle();
    };
    const fail = (error: Error) => finish(() => reject(error));
    const cancelTimeout = afterRunning(systemClock, timeoutMs, () => fail(timedOut(upstream, timeoutMs)));
    socket.once('error', fail);
    socket.on('message', (data) => {
      const reply = readReply(data, query, id);
      if (reply || ++wrong === MAX_WRONG) finish(() => resolve(reply));
    });
    // Called, contrary to its type, with an error if the address is unreachable.
    const connected = (error?: Error) => {
      if (error) fail(error);
      else if (!finished) socket.send(bytes);
    };
    socket.connect(upstream.port, upstream.address, connected);
  });
}

function exchangeTcp(
  upstream: UpstreamAddress,
  query: OutgoingQuery,
  id: number,
  bytes: Buffer,
  timeoutMs: number,
): Promise<Message> {
  return new Promise((resolve, reject) => {
    const socket = connect(upstream.port, upstream.address);
    let received = Buffer.alloc(0);
    const finish = (settle: () => void) => {
      cancelTimeout();
      socket.removeAllListeners();
      socket.on('error', () => {});
      socket.destroy();
      settle();
    };
    const fail = (error: Error) => finish(() => reject(error));
    const cancelTimeout = afterRunning(systemClock, timeoutMs, () => fail(timedOut(upstream, timeoutMs)));
    socket.once('error', fail);
    socket.once('close', () => fail(broken(upstream)));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 2 || received.length < received.readUInt16BE(0) + 2) return;
      const reply = readReply(received.subarray(2, received.readUInt16BE(0) + 2), query, id);
      if (reply) finish(() => resolve(reply));
      else fail(broken(upstream));
    });
    const length = Buffer.allocUnsafe(2);
    length.writeUInt16BE(bytes.length);
    socket.write(Buffer.concat([length, bytes]));
  });
}

function timedOut({ address, port }: UpstreamAddress, timeoutMs: number): FairleadError {
  return new FairleadError(`name server ${address} port ${port} did not answer within ${timeoutMs} ms`, {
    op: 'query a name server',
    code: 'ETIMEDOUT',
  });
}

function broken({ address, port }: UpstreamAddress): FairleadError {
  return new FairleadError(
    `name server ${address} port ${port} closed the connection or sent an invalid answer`,
    {
      op: 'query a name server',
      code: 'EPROTO',
    },
  );
}
