import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import { familyOf, formatAddress } from '../../lib/address.ts';
import { afterRunning, systemClock } from '../../lib/clock.ts';
import { decodeMessage } from '../decode.ts';
import { encodeQuery } from '../encode.ts';
import { CLASS_IN, type Edns, type Message, type ResourceRecord, TYPE } from '../message.ts';

export interface ServerAddress {
  readonly address: string;
  readonly port: number;
}

/** Returns the bytes of a query for "NAME TYPE", with id 0x1234. */
export function queryBytes(ask: string, options: { edns?: Edns; class?: number; id?: number } = {}): Buffer {
  const [name = '', type = 'A'] = ask.split(' ');
  const question = {
    name: name.replace(/\.$/, ''),
    type: (TYPE as Record<string, number>)[type] ?? Number(type),
    class: options.class ?? CLASS_IN,
  };
  return encodeQuery(options.id ?? 0x1234, question, { edns: options.edns ?? null });
}

/** Sends bytes over UDP and waits for one answer; null if none arrives within `timeoutMs`. */
export function exchangeUdp(
  server: ServerAddress,
  bytes: Uint8Array,
  timeoutMs = 5000,
): Promise<Buffer | null> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(familyOf(server.address) === 'ipv6' ? 'udp6' : 'udp4');
    // Time in which this process stood still is not the server's.
    const cancelTimeout = afterRunning(systemClock, timeoutMs, () => finish(null));
    const finish = (answer: Buffer | null) => {
      cancelTimeout();
      socket.close();
      resolve(answer);
    };
    socket.once('error', reject);
    socket.once('message', finish);
    socket.send(bytes, server.port, server.address);
  });
}

/** Sends messages over one TCP connection at once; resolves with all answers, in order of arrival, when it ends. */
export function exchangeTcp(server: ServerAddress, ...messages: Uint8Array[]): Promise<Buffer[]> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: server.address, port: server.port, allowHalfOpen: true });
    const chunks: Buffer[] = [];
    socket.on('error', reject);
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('close', () => resolve(unframe(Buffer.concat(chunks))));
    socket.on('end', () => socket.end());
    for (const message of messages) socket.write(frame(message));
    socket.end();
  });
}

export function frame(message: Uint8Array): Buffer {
  const length = Buffer.allocUnsafe(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}

export function unframe(bytes: Buffer): Buffer[] {
  const messages: Buffer[] = [];
  for (let at = 0; at + 2 <= bytes.length; ) {
    const end = at + 2 + bytes.readUInt16BE(at);
    messages.push(bytes.subarray(at + 2, end));
    at = end;
  }
  return messages;
}

/** Queries "NAME TYPE" and decodes the answer. */
export async function ask(
  server: ServerAddress,
  transport: 'udp' | 'tcp',
  question: string,
  edns?: Edns,
): Promise<Message> {
  const bytes = queryBytes(question, edns ? { edns } : {});
  const answer =
    transport === 'udp' ? await exchangeUdp(server, bytes) : (await exchangeTcp(server, bytes))[0];
  const message = answer && decodeMessage(answer);
  if (!message) throw new Error(`no answer to ${question} over ${transport}`);
  return message;
}

/** Formats a record as "NAME TTL TYPE DATA", like dig, without final dots. */
export function recordText(record: ResourceRecord): string {
  const type = Object.entries(TYPE).find(([, number]) => number === record.type)?.[0] ?? String(record.type);
  return `${record.name} ${record.ttl} ${type} ${dataText(record)}`;
}

function dataText({ type, data }: ResourceRecord): string {
  if (data instanceof Uint8Array) {
    if (type === TYPE.A || type === TYPE.AAAA) return formatAddress(data);
    if (type === TYPE.TXT) return `"${Buffer.from(data.subarray(1)).toString('latin1')}"`;
    return Buffer.from(data).toString('hex');
  }
  if ('primary' in data) return `${data.primary} ${data.mailbox}`;
  if ('priority' in data) return `${data.priority} ${data.weight} ${data.port} ${data.target}`;
  if ('preference' in data) return `${data.preference} ${data.target}`;
  return data.target;
}
