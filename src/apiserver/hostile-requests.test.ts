import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { after, before, test } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { manualClock } from '../lib/clock.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { CORE, configMap, startApi } from './testing/api.ts';

const clock = manualClock(Date.now());
const api = startApi({ clock });
let port = 0;
const admin = api.authority.issue({
  commonName: 'admin',
  organizations: ['system:masters'],
  usage: 'client',
});

before(async () => {
  [port = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
  await api.request('POST', `${CORE}/configmaps`, configMap('there'));
});
after(() => api.server.close());

async function open(): Promise<TLSSocket> {
  const socket = connect({
    host: '127.0.0.1',
    port,
    ca: api.authority.cert,
    ...admin,
    ALPNProtocols: ['http/1.1'],
  });
  socket.on('error', () => {});
  await once(socket, 'secureConnect');
  return socket;
}

/** Sends bytes and reads until the answer's head is there or the connection ends. */
async function send(bytes: string | Buffer): Promise<string> {
  const socket = await open();
  let text = '';
  const done = new Promise<void>((resolve) => {
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (text.includes('\r\n\r\n')) resolve();
    });
    socket.on('close', () => resolve());
  });
  socket.write(bytes);
  await done;
  socket.destroy();
  return text;
}

async function serves(): Promise<void> {
  const answer = await send(`GET ${CORE}/configmaps/there HTTP/1.1\r\nhost: a\r\n\r\n`);
  assert.match(answer, /^HTTP\/1\.1 200 /);
}

/** A generator with a seed, so that a failure can be run again (xorshift32). */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

const PARTS = [
  'api',
  'apis',
  'v1',
  'apps',
  'watch',
  'namespaces',
  'default',
  'pods',
  'nodes',
  'services',
  'configmaps',
  'there',
  'proxy',
  'log',
  'exec',
  'status',
  'scale',
  'finalize',
  'binding',
  'token',
  'openapi',
  'v2',
  'v3',
  'healthz',
  'readyz',
  'metrics',
  '%',
  '%25',
  '%ff',
  '%00',
  '%2e%2e',
  '..',
  '.',
  '',
  '__proto__',
  'constructor',
  'https:a:b',
  'a:b:c:d',
  '\u00e9',
  'x'.repeat(300),
];
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'TRACE', 'CONNECT'];
const QUERIES = [
  'watch=1',
  'watch=true&resourceVersion=x',
  'limit=-1',
  'limit=x',
  'continue=%%',
  'fieldSelector=a',
  'labelSelector=((',
  'dryRun=x',
  'resourceVersion=99999999999999999999',
  'timeoutSeconds=-5',
  'pretty=true',
  'sendInitialEvents=true',
  'includeObject=x',
  'exclude=%ff',
  'gracePeriodSeconds=x',
  '=&=&&',
  'container=%00',
];
const HEADERS = [
  'accept: application/yaml',
  'accept: ;;;,q=',
  'accept: application/vnd.kubernetes.protobuf',
  'accept: application/json;as=Table;v=v1;g=meta.k8s.io',
  'content-type: application/yaml',
  'content-type: application/json-patch+json',
  'content-type: application/apply-patch+yaml',
  'content-type: application/vnd.kubernetes.protobuf',
  'content-type: \u00ff',
  'impersonate-user: x',
  'connection: upgrade\r\nupgrade: websocket',
  'connection: upgrade\r\nupgrade: SPDY/3.1',
  'connection: upgrade\r\nupgrade: h2c',
  'authorization: Bearer ..',
  'authorization: Bearer \u0001',
  'range: bytes=0-1',
  'expect: 100-continue',
  'if-none-match: "x"',
];
const BODIES = [
  '',
  '{}',
  '[]',
  'null',
  '{"metadata":{"name":null}}',
  '{"kind":1}',
  '{"metadata":[]}',
  'k8s\0\u0001',
  ': : :',
  '"',
  '[{"op":"add"}]',
];

test('no request stops the server', async () => {
  const seed = 20_261_122;
  const below = random(seed);
  const one = <T>(list: readonly T[]): T => list[below(list.length)] as T;
  for (let i = 0; i < 150; i++) {
    const path = Array.from({ length: below(9) }, () => one(PARTS)).join('/');
    const body = one(BODIES);
    const headers = Array.from({ length: below(4) }, () => one(HEADERS));
    const request = [
      `${one(METHODS)} /${path}?${one(QUERIES)} HTTP/1.1`,
      'host: a',
      ...headers,
      `content-length: ${Buffer.byteLength(body)}`,
      'connection: close',
      '',
      body,
    ].join('\r\n');
    const socket = await open();
    const answered = new Promise<void>((resolve) => {
      socket.on('data', () => resolve()).on('close', () => resolve());
    });
    socket.write(Buffer.from(request, 'latin1'));
    // Some answers are streams that do not end by themselves.
    await answered;
    socket.destroy();
  }
  await serves();
});

test('bytes that are not HTTP', async () => {
  for (const bytes of [
    '\0\0\0\0',
    'GET',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    `GET / HTTP/1.1\r\n${'a: b\r\n'.repeat(50_000)}\r\n`,
  ]) {
    const socket = await open();
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.resume();
    socket.end(bytes);
    await closed;
  }
  await serves();
});

for (const [what, head, status] of [
  ['a body that never arrives', `POST ${CORE}/configmaps HTTP/1.1`, 408],
  ['a body that never arrives, and is not needed', `GET ${CORE}/configmaps/there HTTP/1.1`, 200],
] as const) {
  test(`${what}: the answer comes, and the connection is closed`, async () => {
    const socket = await open();
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
    });
    const closed = once(socket, 'close');
    socket.write(`${head}\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"a"`);
    const ticking = setInterval(() => clock.advance(10_000), 20);
    await closed.finally(() => clearInterval(ticking));
    assert.match(text, new RegExp(`^HTTP/1\\.1 ${status} `));
    await serves();
  });
}

test('HTTP/2: streams that are reset, and a connection that is closed', async () => {
  const session = connectHttp2(`https://127.0.0.1:${port}`, { ca: api.authority.cert, ...admin });
  session.on('error', () => {});
  for (let i = 0; i < 50; i++) {
    const stream = session.request({
      ':path': `${CORE}/configmaps?watch=true`,
      ':method': i % 2 ? 'GET' : 'POST',
    });
    stream.on('error', () => {});
    if (i % 3 === 0) stream.close(8);
  }
  await new Promise((resolve) => setImmediate(resolve));
  session.destroy();
  await serves();
});

/** Opens a connection without credentials. */
async function openUnknown(protocol: 'h2' | 'http/1.1'): Promise<TLSSocket> {
  const socket = connect({ host: '127.0.0.1', port, ca: api.authority.cert, ALPNProtocols: [protocol] });
  socket.on('error', () => {});
  socket.resume();
  await once(socket, 'secureConnect');
  return socket;
}

function frame(type: number, flags: number, stream: number, payload: readonly number[] = []): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, Buffer.from(payload)]);
}

const PREFACE = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(4, 0, 0)]);
/** HPACK: GET https://a/ */
const GET = [0x82, 0x84, 0x87, 0x41, 0x01, 0x61];
const floods: readonly [what: string, count: number, frames: (i: number) => Buffer][] = [
  [
    'streams that are reset at once',
    200,
    (i) => Buffer.concat([frame(1, 5, 2 * i + 1, GET), frame(3, 0, 2 * i + 1, [0, 0, 0, 8])]),
  ],
  [
    'streams that the server must reset',
    2000,
    (i) => Buffer.concat([frame(1, 5, 2 * i + 1, GET), frame(8, 0, 2 * i + 1, [0, 0, 0, 0])]),
  ],
  ['headers that never end', 2000, (i) => (i === 0 ? frame(1, 0, 1, GET) : frame(9, 0, 1))],
  ['settings', 20_000, () => frame(4, 0, 0, [0, 3, 0, 0, 0, 100])],
  ['pings', 20_000, () => frame(6, 0, 0, [0, 0, 0, 0, 0, 0, 0, 0])],
];
for (const [what, count, frames] of floods) {
  test(`HTTP/2 without credentials, ${what}: the connection is ended`, { timeout: 60_000 }, async () => {
    const socket = await openUnknown('h2');
    // A server that reads on would end it only when the process ends.
    const closed = once(socket, 'close');
    socket.write(Buffer.concat([PREFACE, ...Array.from({ length: count }, (_, i) => frames(i))]));
    await closed;
    await serves();
  });
}

for (const [what, protocol, bytes] of [
  ['nothing', 'http/1.1', ''],
  ['headers that never end', 'http/1.1', 'GET / HTTP/1.1\r\na: b\r\n'],
  ['an HTTP/2 preface', 'h2', PREFACE],
  ['HTTP/2 headers that never end', 'h2', Buffer.concat([PREFACE, frame(1, 0, 1, GET)])],
] as const) {
  test(`a connection without credentials that sends ${what} is closed`, { timeout: 60_000 }, async () => {
    const socket = await openUnknown(protocol);
    const closed = once(socket, 'close');
    socket.write(bytes);
    const ticking = setInterval(() => clock.advance(5000), 20);
    await closed.finally(() => clearInterval(ticking));
    await serves();
  });
}

test('300 connections without credentials of one source: 200 stay, and a client with credentials is served', async () => {
  const sockets = await Promise.all(Array.from({ length: 300 }, () => openUnknown('http/1.1')));
  await eventually(() => sockets.filter((socket) => socket.closed).length === 100);
  await serves();
  for (const socket of sockets) socket.destroy();
});

const bodies: readonly [what: string, type: string, body: string, status: number, message: RegExp][] = [
  ['deep JSON', 'application/json', '['.repeat(100_000), 400, /nesting exceeds 400 levels/],
  [
    'deep JSON within strings',
    'application/json',
    `{"metadata":{"name":"b"},"data":{"a":"${'['.repeat(1000)}"}}`,
    201,
    /^$/,
  ],
  ['deep YAML', 'application/yaml', `a: ${'['.repeat(100_000)}`, 400, /nesting/],
  [
    'YAML whose aliases multiply',
    'application/yaml',
    'a: &a [1,1,1,1,1,1,1,1,1,1]\n' +
      Array.from(
        { length: 8 },
        (_, i) => `${'bcdefghi'[i]}: &${'bcdefghi'[i]} [${Array(10).fill(`*${'abcdefgh'[i]}`).join(',')}]`,
      ).join('\n'),
    400,
    /more than 1000000 values/,
  ],
  [
    'YAML with a duplicate key',
    'application/yaml',
    'kind: a\nkind: b',
    400,
    /key \\"kind\\" already set in map/,
  ],
  [
    'a body over 3 MiB',
    'application/json',
    `{"a":"${'x'.repeat(3 * 1024 * 1024)}"}`,
    413,
    /limit is 3145728/,
  ],
  [
    'a ConfigMap with more than 1 MiB of data',
    'application/json',
    `{"metadata":{"name":"large"},"data":{"a":"${'x'.repeat(1024 * 1024 + 1)}"}}`,
    422,
    /may not be more than 1048576 bytes/,
  ],
  [
    'YAML with 100,000 keys',
    'application/yaml',
    `metadata: {name: keys}\ndata:\n${Array.from({ length: 100_000 }, (_, i) => ` k${i.toString(36)}:`).join('\n')}`,
    201,
    /^$/,
  ],
  ['a body of an unknown type', 'text/plain', 'x', 415, /unknown format/],
];
for (const [what, type, body, status, message] of bodies) {
  test(what, async () => {
    const answer = await send(
      `POST ${CORE}/configmaps HTTP/1.1\r\nhost: a\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
    assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `));
    if (status >= 400) assert.match(answer, message);
    await serves();
  });
}

test('a list of 8,000 items with keys is applied, changed and removed in time linear to its size', async () => {
  const apply = (labels: object, env: readonly object[]) =>
    api.request(
      'PATCH',
      `${CORE}/pods/long?fieldManager=tester`,
      {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'long', labels },
        spec: { containers: [{ name: 'c', image: 'i', env }] },
      },
      { 'content-type': 'application/apply-patch+yaml' },
    );
  const env = Array.from({ length: 8000 }, (_, i) => ({ name: `K${i}`, value: 'a' }));
  assert.equal((await apply({}, env)).status, 201);
  assert.equal((await apply({ changed: 'yes' }, env)).status, 200);
  // The fields of a running pod do not change: the API server answers after it has merged them.
  assert.equal((await apply({}, [])).status, 422);
  await serves();
});
