import type { Socket } from 'node:net';

/** Numbers below a limit, from a linear congruential generator (Numerical Recipes): the same at every run. */
export function seededNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % below;
  };
}

const METHODS = ['GET', 'POST', 'PUT', 'DELETE', 'CONNECT', 'OPTIONS', 'HEAD', 'TRACE', 'PRI', 'get', '\0'];
const SEPARATORS = ['/', '/', '/', '//', '?', '&'];
const PIECES = [
  ...['%', '%25', '%00', '%ff', '%E0%A4', '..', '.', '', '?', '#', '&', '=', '__proto__', 'constructor'],
  ...['[', ']', '@', ':', '\\', 'x'.repeat(3000), '\u00e9', '"', "'", '{}'],
];
const HEADERS = [
  ...['upgrade: websocket', 'upgrade: SPDY/3.1', 'upgrade: h2c', 'connection: upgrade', 'connection: close'],
  ...['sec-websocket-key: x', 'sec-websocket-version: 13', 'sec-websocket-version: -1'],
  ...['x-stream-protocol-version: v9', 'sec-websocket-protocol: v5.channel.k8s.io'],
  ...['sec-websocket-protocol: ,,,', 'content-length: 3', 'content-length: -1', 'transfer-encoding: chunked'],
  ...['expect: 100-continue', 'expect: x', 'host:', 'host: [', 'range: bytes=9-', 'accept-encoding: \u00ff'],
  `x-long: ${'y'.repeat(20_000)}`,
];

/**
 * Sends random paths, headers, upgrades, truncated requests and bytes that are not HTTP to a server, each on a connection
 * of its own, and waits until the server has closed it. `words`: pieces of paths that the server knows.
 */
export async function sendHostileRequests(
  open: () => Socket,
  { words = [], rounds = 300, seed = 7 }: { words?: readonly string[]; rounds?: number; seed?: number },
): Promise<void> {
  const below = seededNumbers(seed);
  const one = <T>(list: readonly T[]): T => list[below(list.length)] as T;
  const pieces = [...words, ...PIECES];
  for (let round = 0; round < rounds; round++) {
    let path = '/';
    for (let count = below(7); count > 0; count--) path += one(pieces) + one(SEPARATORS);
    const headers = Array.from({ length: below(6) }, () => one(HEADERS));
    const head = [`${one(METHODS)} ${path} HTTP/1.1`, 'host: node', ...headers, 'connection: close', '', ''];
    const text = head.join('\r\n');
    const bytes = Buffer.from(below(10) === 0 ? text.slice(0, below(text.length)) : text, 'latin1');
    if (below(20) === 0) for (let i = 0; i < bytes.length; i++) bytes[i] = below(256);
    await exchange(open(), bytes);
  }
}

/** Sends bytes, closes this half, and reads until the server closes the other one. */
function exchange(socket: Socket, bytes: Buffer): Promise<void> {
  return new Promise((resolve) => {
    socket.on('error', () => {});
    socket.on('close', () => resolve());
    socket.resume();
    socket.end(bytes);
  });
}
