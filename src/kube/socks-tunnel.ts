import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { addressBytes, hostPort } from '../lib/address.ts';
import { readExactly } from '../lib/read-exactly.ts';
import { proxyRefusal } from './proxy-refusal.ts';

// SOCKS 5 (RFC 1928), names and passwords (RFC 1929).
const VERSION = 5;
const PASSWORD_VERSION = 1;
const METHOD = { none: 0, password: 2 } as const;
const CONNECT = 1;
const ADDRESS = { ipv4: 1, name: 3, ipv6: 4 } as const;
const DEFAULT_PORT = 1080;
/** Lengths of names and passwords are a byte. */
const MAX_BYTES = 255;
/** Replies of the proxy, by number. */
const REPLIES = [
  'succeeded',
  'general failure',
  'not allowed by its rules',
  'network unreachable',
  'host unreachable',
  'connection refused',
  'TTL expired',
  'command not supported',
  'address type not supported',
];
/** Milliseconds without an answer of the proxy, which connects to the server meanwhile. */
const SILENCE_MS = 30_000;

/**
 * Opens a connection to a host through a SOCKS 5 proxy; the proxy looks up names. Name and password are those of the URL.
 * Rejects with FairleadError if the proxy refuses, and with the error of the socket.
 */
export async function openSocksTunnel(proxy: URL, host: string, port: number): Promise<Socket> {
  const refused = (why: string) => proxyRefusal(proxy, hostPort({ ip: host, port }), why);
  const socket = connect({
    host: proxy.hostname.replace(/^\[|\]$/g, ''),
    port: Number(proxy.port || DEFAULT_PORT),
  });
  const giveUp = () => socket.destroy(refused(`no answer within ${SILENCE_MS / 1000} s`));
  socket.setTimeout(SILENCE_MS, giveUp);
  try {
    await once(socket, 'connect');
    await authenticate(socket, proxy, refused);
    socket.write(Buffer.concat([Buffer.of(VERSION, CONNECT, 0), target(host, refused), portBytes(port)]));
    await readReply(socket, refused);
  } catch (error) {
    socket.destroy();
    throw error;
  }
  // Without its listener, which would end the connection at a later timeout of the agent.
  socket.setTimeout(0, giveUp);
  return socket;
}

type Refused = (why: string) => Error;

async function authenticate(socket: Socket, proxy: URL, refused: Refused): Promise<void> {
  const hasName = proxy.username !== '';
  const methods = hasName ? [METHOD.none, METHOD.password] : [METHOD.none];
  socket.write(Buffer.of(VERSION, methods.length, ...methods));
  const [version, method] = await read(socket, 2, refused);
  if (version !== VERSION) throw refused('it is not a SOCKS 5 proxy');
  if (method === METHOD.none) return;
  if (method !== METHOD.password || !hasName) throw refused('it requires another authentication');
  const [name, password] = [proxy.username, proxy.password].map((text) => sized(decodeURIComponent(text)));
  if (!name || !password) throw refused(`its name or password is longer than ${MAX_BYTES} bytes`);
  socket.write(Buffer.concat([Buffer.of(PASSWORD_VERSION), name, password]));
  const [, status] = await read(socket, 2, refused);
  if (status !== 0) throw refused('its name or password is wrong');
}

/** Reads the answer to CONNECT, with the proxy's own address, which is not used. */
async function readReply(socket: Socket, refused: Refused): Promise<void> {
  const [version, reply = 1, , type] = await read(socket, 4, refused);
  if (version !== VERSION) throw refused('it is not a SOCKS 5 proxy');
  if (reply !== 0) throw refused(REPLIES[reply] ?? `reply ${reply}`);
  let length = type === ADDRESS.ipv4 ? 4 : 16;
  if (type === ADDRESS.name) length = (await read(socket, 1, refused))[0] ?? 0;
  await read(socket, length + 2, refused);
}

function target(host: string, refused: Refused): Buffer {
  const bytes = addressBytes(host);
  if (bytes) return Buffer.concat([Buffer.of(bytes.length === 4 ? ADDRESS.ipv4 : ADDRESS.ipv6), bytes]);
  const name = sized(host);
  if (!name) throw refused(`the name is longer than ${MAX_BYTES} bytes`);
  return Buffer.concat([Buffer.of(ADDRESS.name), name]);
}

/** Returns a text with its length before it; null: it is too long. */
function sized(text: string): Buffer | null {
  const bytes = Buffer.from(text);
  return bytes.length > MAX_BYTES ? null : Buffer.concat([Buffer.of(bytes.length), bytes]);
}

const portBytes = (port: number): Buffer => Buffer.of(port >> 8, port & 0xff);

async function read(socket: Socket, length: number, refused: Refused): Promise<Buffer> {
  const bytes = await readExactly(socket, length);
  if (bytes === null) throw refused('it ended the connection');
  return bytes;
}
