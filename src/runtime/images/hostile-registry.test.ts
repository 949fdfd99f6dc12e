import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { parseReference } from './reference.ts';
import { openRegistry, type Registry } from './registry.ts';
import { endpointsOf, guardOf } from './registry-endpoint.ts';
import { openResponse } from './registry-request.ts';

let close = () => {};
afterEach(() => close());

const MIN_BYTES = 1000;

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
  const patience = { answerMs: ms, documentMs: ms, idleMs: ms, minBytes: MIN_BYTES };
  return openRegistry(parseReference(`127.0.0.1:${port}/hostile:1`), { patience });
}

/** Reads a blob; returns its bytes. `pauseMs`: after each part. */
async function read(registry: Registry, pauseMs = 0): Promise<number> {
  const { body } = await registry.blob(`sha256:${'a'.repeat(64)}`, 0);
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    await setTimeout(pauseMs);
  }
  return bytes;
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

/** Sends "100 Continue" as long as they are read. */
function interim(response: ServerResponse): void {
  const text = 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(1000);
  const more = () => {
    if (response.socket?.destroyed === false) response.socket.write(text, () => setImmediate(more));
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
  ['interim responses without end', interim, /more than 16 interim responses/],
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
  for (const [what, answer] of [
    ['a blob that stops', (response) => response.writeHead(200).write('x')],
    ['a blob of one byte after the other', drip],
  ] as const satisfies readonly (readonly [string, Answer])[])
    test(what, async () => {
      const registry = await repository(answer, 1000);
      await assert.rejects(read(registry), /less than 1000 bytes within 1 s/);
    });
  test('nothing: time in which a blob is not read does not count', async () => {
    const registry = await repository((response) => response.end(Buffer.alloc(10 * MIN_BYTES)), 200);
    assert.equal(await read(registry, 300), 10 * MIN_BYTES);
  });
});

/** Addresses and servers to which a registry may not send a client. */
const AWAY: readonly (readonly [what: string, location: string, message: RegExp])[] = [
  [
    'a metadata service',
    'http://169.254.169.254/latest/meta-data/',
    /169\.254\.169\.254.*address not allowed/,
  ],
  ['a metadata service over IPv6', 'http://[fd00:ec2::254]/', /address not allowed/],
  ['a link-local address', 'http://[fe80::1]/', /address not allowed/],
  ['a mapped link-local address', 'http://[::ffff:169.254.169.254]/', /address not allowed/],
  ['an address in decimal', 'http://2852039166/', /169\.254\.169\.254.*address not allowed/],
  ['multicast', 'http://224.0.0.1/', /address not allowed/],
  ['every address', 'http://0.0.0.0/', /address not allowed/],
  ['a file', 'file:///etc/passwd', /unsupported address/],
  ['nowhere', 'http://', /unsupported address/],
];

describe('a registry may not send its client to', () => {
  for (const [what, location, message] of AWAY) {
    test(`${what}, by a redirect`, async () => {
      const registry = await repository((response) => response.writeHead(307, { location }).end(), 60_000);
      await assert.rejects(registry.manifest('1'), { message });
    });
    test(`${what}, by the address of its tokens`, async () => {
      const header = { 'www-authenticate': `Bearer realm="${location}",service="x"` };
      const registry = await repository((response) => response.writeHead(401, header).end(), 60_000);
      await assert.rejects(registry.manifest('1'), { message: /address not allowed|unsupported/ });
    });
  }
  test('itself without end', async () => {
    let asked = 0;
    const registry = await repository((response, path) => {
      asked++;
      response.writeHead(302, { location: `${path}x` }).end();
    }, 60_000);
    await assert.rejects(registry.manifest('1'), { message: /more than 5 redirects/ });
    assert.equal(asked, 6);
  });
  test('loopback, unless its own name says so', async () => {
    let asked = 0;
    const server = createServer((_, response) => {
      asked++;
      response.end('{}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    try {
      for (const place of [`127.0.0.1:${port}`, `localhost:${port}`, `[::ffff:127.0.0.1]:${port}`]) {
        for (const url of ['https://registry.example', 'http://registry.example']) {
          const guard = guardOf(
            { url: new URL(url), isNamed: true, isMirror: false },
            new URL(`http://${place}/`),
          );
          await assert.rejects(
            openResponse(new URL(`http://${place}/`), {
              headers: {},
              mayDial: guard,
              proxies: null,
              signal: null,
            }),
            /address not allowed/,
          );
        }
      }
      assert.equal(asked, 0);
    } finally {
      server.close();
    }
  });
  test('another host with its credentials', async () => {
    const seen: (string | undefined)[] = [];
    const other = createServer((request, response) => {
      seen.push(request.headers.authorization);
      response.end('{}');
    });
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    try {
      const registry = await repository((response, path, base) => {
        if (path.startsWith('/token')) response.end('{"token":"secret"}');
        else if (seen.length === 0 && !path.includes('again'))
          response
            .writeHead(asked++ === 0 ? 401 : 307, {
              'www-authenticate': `Bearer realm="${base}/token"`,
              location: `http://localhost:${port}/`,
            })
            .end();
      }, 60_000);
      let asked = 0;
      await registry.manifest('1');
      assert.deepEqual(seen, [undefined]);
    } finally {
      other.close();
    }
  });
});

describe('the name of a registry', () => {
  for (const [name, isPlain] of [
    ['localhost:5000', true],
    ['127.0.0.1:5000', true],
    ['127.1:5000', true],
    ['[::1]:5000', true],
    ['127.0.0.1.example:5000', false],
    ['127.example', false],
    ['localhost.example', false],
    ['registry.example:5000', false],
  ] as const)
    test(`${name} is contacted ${isPlain ? 'without' : 'with'} TLS`, () => {
      const [endpoint] = endpointsOf(parseReference(`${name}/app:1`), {});
      assert.equal(endpoint?.url.protocol, isPlain ? 'http:' : 'https:');
    });
});
