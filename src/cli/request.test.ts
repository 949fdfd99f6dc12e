import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { OUTPUT_VERSION } from './output-format.ts';
import { command } from './request.ts';

const server = createServer((_, response) => response.end('pong'));
let port = 0;
before(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});
after(() => server.close());

async function request([url]: readonly string[], ...words: readonly string[]) {
  let out = '';
  const begin = performance.now();
  const status = await command.run([url ?? `http://127.0.0.1:${port}`, '-o', 'json', ...words], {
    out: (text) => {
      out += text;
    },
    err: () => {},
    raw: () => {},
    interactive: false,
    columns: null,
    unread: new AbortController().signal,
  });
  return { status, ms: performance.now() - begin, ...(JSON.parse(out) as Record<string, unknown>) };
}

const ROWS = [
  ['one request', [], 1, 0],
  ['more requests than concurrent ones', ['--count', '20', '--concurrency', '4'], 20, 0],
  // The fifth request is sent after 4 × 20 ms or later, although the others are answered at once.
  ['at a limited rate', ['--count', '5', '--rate', '50'], 5, 75],
] as const;
for (const [what, words, answers, minMs] of ROWS) {
  test(`${what}: each is counted by its answer`, async () => {
    const { status, ms, ...counts } = await request([], ...words);
    assert.deepEqual(counts, {
      apiVersion: OUTPUT_VERSION,
      count: answers,
      answers: { pong: answers },
      failures: {},
    });
    assert.equal(status, 0);
    assert.ok(ms >= minMs, `${ms} ms`);
  });
}

const silent = createTcpServer((socket) => silentSockets.push(socket));
const silentSockets: Socket[] = [];
const unheard = createSocket('udp4');
after(() => {
  for (const socket of silentSockets) socket.destroy();
  silent.close();
  unheard.close();
});
const SILENCE = [
  ['a server that accepts and says nothing', 'http', (at: string) => `connected to ${at}, no response`],
  ['a server that reads datagrams and says nothing', 'udp', (at: string) => `nothing from ${at}`],
] as const;
for (const [what, protocol, reason] of SILENCE) {
  test(`${what}: the failure tells what was missing`, async () => {
    const at = await new Promise<string>((resolve) => {
      if (protocol === 'udp')
        unheard.bind(0, '127.0.0.1', () => resolve(`127.0.0.1:${unheard.address().port}`));
      else
        silent.listen(0, '127.0.0.1', () => resolve(`127.0.0.1:${(silent.address() as AddressInfo).port}`));
    });
    const { status, ms: _, ...counts } = await request([`${protocol}://${at}`], '--timeout', '50');
    const failures = { [`no answer within 50 ms: ${reason(at)}`]: 1 };
    assert.deepEqual(counts, { apiVersion: OUTPUT_VERSION, count: 1, answers: {}, failures });
    assert.equal(status, 1);
  });
}

const ENDS = [
  ['that closes the connection', '', /socket hang up/],
  ['that closes it within the body', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npong', /aborted/],
  [
    'that changes the protocol',
    'HTTP/1.1 101 Other\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n',
    /closed without an answer/,
  ],
] as const;
for (const [what, bytes, reason] of ENDS) {
  test(`a server ${what}: the request fails`, async () => {
    const ending = createTcpServer((socket) => socket.once('data', () => socket.end(bytes)));
    await new Promise<void>((resolve) => ending.listen(0, '127.0.0.1', resolve));
    try {
      const { status, ...facts } = await request([
        `http://127.0.0.1:${(ending.address() as AddressInfo).port}`,
      ]);
      assert.equal(status, 1);
      assert.match(JSON.stringify(facts), reason);
    } finally {
      ending.close();
    }
  });
}
