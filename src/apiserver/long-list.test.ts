import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:http2';
import { request } from 'node:https';
import { after, before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { KINDS } from './kinds.ts';
import { createSchemaService } from './schema/service.ts';
import { CORE, configMap, startApi } from './testing/api.ts';

/** Lists of many objects are put together while they are sent. */

const OBJECTS = 150;
const PATH = `${CORE}/configmaps`;
const PROTOBUF = 'application/vnd.kubernetes.protobuf';
const schema = createSchemaService({ kinds: KINDS });
const api = startApi();
const { cert, key } = api.authority.issue({
  commonName: 'admin',
  organizations: ['system:masters'],
  usage: 'client',
});
const tls = { ca: api.authority.cert, cert, key };
let port = 0;

before(async () => {
  [port = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
  for (let i = 0; i < OBJECTS; i++)
    await api.request('POST', PATH, configMap(`long-${i}`, { text: `é${i}`.repeat(3000) }));
});
after(() => api.server.close());

type Headers = Readonly<Record<string, string>>;

async function readAll(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function http1(headers: Headers, method = 'GET') {
  const outgoing = request({ host: '127.0.0.1', port, path: PATH, method, agent: false, headers, ...tls });
  outgoing.end();
  const [response] = await once(outgoing, 'response');
  return { encoding: response.headers['content-encoding'], body: await readAll(response) };
}

async function http2(headers: Headers) {
  const session = connect(`https://127.0.0.1:${port}`, tls);
  try {
    const stream = session.request({ ':path': PATH, ...headers });
    const [answered] = await once(stream, 'response');
    return { encoding: answered['content-encoding'], body: await readAll(stream) };
  } finally {
    session.close();
  }
}

const names = (list: object) =>
  (list as { items: { metadata: { name: string } }[] }).items.map(({ metadata }) => metadata.name);
const read = (accept: string, body: Buffer) =>
  accept === PROTOBUF ? schema.decodeProtobuf(body) : JSON.parse(body.toString());

for (const accept of ['application/json', PROTOBUF]) {
  for (const [version, get] of Object.entries({ 'HTTP/1.1': http1, 'HTTP/2': http2 })) {
    for (const encoding of ['identity', 'gzip']) {
      test(`${accept} over ${version}, ${encoding}: all objects, as in the list of the same process`, async () => {
        const whole = (await api.request('GET', PATH)).body;
        const answer = await get({ accept, 'accept-encoding': encoding });
        assert.equal(answer.encoding, encoding === 'gzip' ? 'gzip' : undefined);
        const body = encoding === 'gzip' ? gunzipSync(answer.body) : answer.body;
        const list = read(accept, body);
        assert.deepEqual(names(list), names(whole));
        assert.equal(names(list).length, OBJECTS);
      });
    }
  }
}

test('HEAD has no body', async () => {
  assert.equal((await http1({}, 'HEAD')).body.length, 0);
});

test('a client that leaves in the middle of a list affects only itself', async () => {
  for (let i = 0; i < 20; i++) {
    const outgoing = request({ host: '127.0.0.1', port, path: PATH, agent: false, ...tls });
    outgoing.on('error', () => {}).end();
    const [response] = await once(outgoing, 'response');
    response.on('error', () => {});
    await once(response, 'readable');
    response.destroy();
    const session = connect(`https://127.0.0.1:${port}`, tls);
    const stream = session.request({ ':path': PATH, 'accept-encoding': i % 2 === 0 ? 'gzip' : 'identity' });
    stream.on('error', () => {});
    await once(stream, 'response');
    stream.close();
    session.destroy();
  }
  assert.equal(names(JSON.parse((await http1({})).body.toString())).length, OBJECTS);
});

test('a client that reads slowly gets the whole list, while others are answered', async () => {
  const session = connect(`https://127.0.0.1:${port}`, { ...tls, settings: { initialWindowSize: 1000 } });
  const slow = session.request({ ':path': PATH });
  await once(slow, 'response');
  const quick = await http2({});
  const body = await readAll(slow);
  session.close();
  assert.equal(body.toString(), quick.body.toString());
});
