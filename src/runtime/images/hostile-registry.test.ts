import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, test } from 'node:test';
import { parseReference } from './reference.ts';
import { openRegistry } from './registry.ts';

let close = () => {};
afterEach(() => close());

type Answer = (response: ServerResponse, path: string, base: string) => void;

async function repository(answer: Answer, ms: number) {
  const server = createServer((request, response) => {
    const { port } = server.address() as AddressInfo;
    answer(response, request.url ?? '', `http://127.0.0.1:${port}`);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  close = () => {
    server.closeAllConnections();
    server.close();
  };
  const { port } = server.address() as AddressInfo;
  const patience = { answerMs: ms, documentMs: ms, idleMs: ms };
  return openRegistry(parseReference(`127.0.0.1:${port}/hostile:1`), { patience });
}

/** Sends zeros as long as they are read. */
function endless(response: ServerResponse, status = 200): void {
  response.writeHead(status);
  const chunk = Buffer.alloc(64 * 1024, ' ');
  const more = () => {
    while (!response.destroyed && response.write(chunk));
    response.once('drain', more);
  };
  more();
}

function drip(response: ServerResponse): void {
  response.writeHead(200);
  const timer = setInterval(() => response.write(' '), 20);
  response.on('close', () => clearInterval(timer));
}

const challenge = (response: ServerResponse, base: string) =>
  response.writeHead(401, { 'www-authenticate': `Bearer realm="${base}/token",service="x"` }).end();

const token =
  (answer: (response: ServerResponse) => void): Answer =>
  (response, path, base) =>
    path.startsWith('/token') ? answer(response) : challenge(response, base);

const ROWS: readonly (readonly [what: string, answer: Answer, message: RegExp])[] = [
  ['a manifest without end', (response) => endless(response), /an answer of more than 4194304 bytes/],
  ['an error without end', (response) => endless(response, 500), /an answer of more than 65536 bytes/],
  ['a token without end', token((response) => endless(response)), /an answer of more than 65536 bytes/],
  ['a token that is a list', token((response) => response.end('{"token":[1]}')), /sent no token/],
  ['a token of two lines', token((response) => response.end('{"token":"a\\r\\nb: c"}')), /sent no token/],
  ['a token that is a page', token((response) => response.end('<html>')), /sent no token/],
  ['no answer', () => {}, /no answer within 0.3 s/],
  [
    'a manifest without a body',
    (response) => response.writeHead(200).flushHeaders(),
    /no answer within 0.3 s/,
  ],
  ['a manifest of one byte after the other', drip, /no answer within 0.3 s/],
];

describe('a pull ends when the registry sends', () => {
  for (const [what, answer, message] of ROWS) {
    test(what, async () => {
      // Only the rows about slow answers wait; a busy machine may take long for the others.
      const registry = await repository(answer, message.source.startsWith('no answer') ? 300 : 60_000);
      await assert.rejects(registry.manifest('1'), { message });
    });
  }
  test('a blob that stops', async () => {
    const registry = await repository((response) => response.writeHead(200).write('x'), 1000);
    const { body } = await registry.blob(`sha256:${'a'.repeat(64)}`, 0);
    const read = async () => {
      for await (const chunk of body) assert.ok(chunk);
    };
    await assert.rejects(read(), /no answer within 1 s/);
  });
});
