import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { createServer as createHttpsServer, request as httpsRequest } from 'node:https';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { CORE, startApi } from './testing/api.ts';

/** What a hostile pod answers to requests that the API server forwards: raw bytes, after which it closes. */
const LONG = `<a href="/x">${' '.repeat(3 << 20)}`;
const packed = (text: string) => gzipSync(text).toString('latin1');
const html = (body: string, more = '') =>
  `HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n${more}connection: close\r\n\r\n${body}`;
const ANSWERS: readonly (readonly [
  what: string,
  answer: string,
  status: number | readonly number[],
  body?: RegExp,
])[] = [
  ['a status without a meaning', 'HTTP/1.1 999 x\r\ncontent-length: 2\r\n\r\nok', [999, 502]],
  ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok', 503],
  [
    'a length and chunks',
    'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    503,
  ],
  [
    'an answer behind its answer',
    'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n',
    200,
    /^ok$/,
  ],
  ['an upgrade that was not asked for', 'HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n', 503],
  [
    'fields of a connection',
    'HTTP/1.1 200 OK\r\nkeep-alive: 1\r\nupgrade: h2c\r\nproxy-connection: x\r\nhttp2-settings: x\r\ncontent-length: 2\r\n\r\nok',
    200,
  ],
  ['a field with control characters', 'HTTP/1.1 200 OK\r\nx: a\x01b\r\ncontent-length: 2\r\n\r\nok', 503],
  ['no HTTP', 'hello\r\n\r\n', 503],
  ['nothing', '', 503],
  [
    'links named as members of objects',
    html('<constructor href="/a"><a __proto__="/b" href="/c">'),
    200,
    /"\/a".*"\/api/,
  ],
  ['a page that is longer than is rewritten', html(LONG), 200, /^<a href="\/x"> +$/],
  ['a packed page that is longer than is rewritten', html(packed(LONG), 'content-encoding: gzip\r\n'), 200],
  ['a page that is not packed, as it says', html('<a href="/x">', 'content-encoding: gzip\r\n'), 200],
];

const api = startApi({ mayDial: () => true });
const admin = api.authority.issue({
  commonName: 'admin',
  organizations: ['system:masters'],
  usage: 'client',
});
const trust = { ca: api.authority.cert, ...admin };
let answer = '';
const pod = createServer((socket: Socket) => {
  socket.on('error', () => {});
  socket.once('data', () => socket.end(answer, 'latin1'));
});
/** The API server reaches pods through it. */
const node = createHttpsServer(
  api.authority.issue({ commonName: 'n1', names: ['localhost'], usage: 'server' }),
).on('connect', ({ url = '' }, socket) => {
  const target = connect(Number(url.split(':')[1]), '127.0.0.1', () => {
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    target.pipe(socket).pipe(target);
  });
  socket.on('error', () => target.destroy());
  target.on('error', () => socket.destroy());
});
let origin = '';
let path = '';

before(async () => {
  await once(pod.listen(0, '127.0.0.1'), 'listening');
  const { port } = pod.address() as AddressInfo;
  const [own = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
  origin = `https://127.0.0.1:${own}`;
  await once(node.listen(0, '127.0.0.1'), 'listening');
  await api.request('POST', '/api/v1/nodes', { metadata: { name: 'n1' } });
  const merge = (to: string, status: object) =>
    api.request('PATCH', `${to}/status`, { status }, { 'content-type': 'application/merge-patch+json' });
  await merge('/api/v1/nodes/n1', {
    addresses: [{ type: 'InternalIP', address: '127.0.0.1' }],
    daemonEndpoints: { kubeletEndpoint: { Port: (node.address() as AddressInfo).port } },
    conditions: [{ type: 'Ready', status: 'True' }],
  });
  await api.request('POST', `${CORE}/pods`, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'hostile' },
    spec: { containers: [{ name: 'c', image: 'x' }] },
  });
  await merge(`${CORE}/pods/hostile`, { podIP: '127.0.0.1', podIPs: [{ ip: '127.0.0.1' }] });
  path = `${CORE}/pods/hostile:${port}/proxy/`;
});
after(() => {
  pod.close();
  node.close();
  node.closeAllConnections();
  api.server.close();
});
async function overHttp1(): Promise<{ status: number; body: string }> {
  const outgoing = httpsRequest(`${origin}${path}`, { ...trust, agent: false });
  outgoing.end();
  const [response] = await once(outgoing, 'response');
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return { status: response.statusCode, body: Buffer.concat(chunks).toString('latin1') };
}

async function overHttp2(): Promise<{ status: number; body: string }> {
  const session = connectHttp2(origin, trust);
  try {
    const stream = session.request({ ':path': path });
    const [head] = await once(stream, 'response');
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    return { status: Number(head[':status']), body: Buffer.concat(chunks).toString('latin1') };
  } finally {
    session.destroy();
  }
}

describe('a pod that is read through its proxy sends', () => {
  for (const [version, read] of Object.entries({ 'HTTP/1.1': overHttp1, 'HTTP/2': overHttp2 }))
    for (const [what, raw, status, body] of ANSWERS)
      test(`${what}, to a client of ${version}: ${status}`, async () => {
        answer = raw;
        const found = await read();
        assert.ok([status].flat().includes(found.status), `${found.status} ${found.body.slice(0, 200)}`);
        if (body) assert.match(found.body, body);
        assert.equal((await api.request('GET', '/version')).status, 200);
      });
});
