import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import { after, before, test } from 'node:test';
import { CORE, configMap, startApi } from './testing/api.ts';

/** Initial events are sent as fast as their client reads them, over a connection that serves others at the same time. */

const OBJECTS = 700;
const OBJECT_BYTES = 100_000;
const PATH = `${CORE}/configmaps?watch=true`;
const LIST = '&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true';
const api = startApi();
const { cert, key } = api.authority.issue({
  commonName: 'admin',
  organizations: ['system:masters'],
  usage: 'client',
});
let port = 0;
const sessions: ClientHttp2Session[] = [];

before(async () => {
  [port = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
  // 70 MB, more than a client may lag.
  for (let i = 0; i < OBJECTS; i++) {
    const object = configMap(`big-${i}`, { text: 'x'.repeat(OBJECT_BYTES) });
    const labels = { part: i < OBJECTS / 3 ? 'first' : 'rest' };
    await api.request('POST', `${CORE}/configmaps`, { ...object, metadata: { ...object.metadata, labels } });
  }
});
after(async () => {
  for (const session of sessions) session.destroy();
  await api.server.close();
});

/** `windowBytes`: how much the client takes of each stream before it reads. */
function open(windowBytes = 1000): ClientHttp2Session {
  const tls = { ca: api.authority.cert, cert, key };
  const session = connect(`https://127.0.0.1:${port}`, {
    ...tls,
    settings: { initialWindowSize: windowBytes },
  });
  session.on('error', () => {});
  sessions.push(session);
  return session;
}

/** Asks for something short; returns the status. Rejects if the stream is refused. */
async function asked(session: ClientHttp2Session): Promise<number> {
  const stream = session.request({ ':path': '/version' });
  const [headers] = await once(stream, 'response');
  stream.resume();
  await once(stream, 'end');
  return headers[':status'];
}

async function opened(session: ClientHttp2Session, path: string): Promise<ClientHttp2Stream> {
  const stream = session.request({ ':path': path });
  stream.on('error', () => {});
  const [headers] = await once(stream, 'response');
  assert.equal(headers[':status'], 200);
  return stream;
}

for (const [size, selector] of [
  ['23 MB', '&labelSelector=part%3Dfirst'],
  ['70 MB', ''],
] as const)
  test(`a watch with ${size} of initial events that is not read does not disturb its connection`, async () => {
    const session = open();
    const stalled = await opened(session, `${PATH}${LIST}${selector}`);
    assert.equal(await asked(session), 200);
    stalled.close(constants.NGHTTP2_CANCEL);
    assert.equal(await asked(session), 200);
  });

test('a client that reads slowly gets all initial events, and what changed meanwhile', async () => {
  const session = open(1024 * 1024);
  const slow = await opened(session, `${PATH}${LIST}&timeoutSeconds=3600`);
  const changed = await api.request('POST', `${CORE}/configmaps`, configMap('later', { text: 'y' }));
  assert.equal(changed.status, 201);
  const chunks: Buffer[] = [];
  for await (const chunk of slow) {
    chunks.push(chunk);
    // The name may be in two chunks.
    if (Buffer.concat(chunks.slice(-2)).includes('"later"')) break;
  }
  const events = Buffer.concat(chunks)
    .toString()
    .split('\n')
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line));
  const mark = events.findIndex(({ type }) => type === 'BOOKMARK');
  assert.equal(mark, OBJECTS);
  assert.equal(events[mark].object.metadata.annotations['k8s.io/initial-events-end'], 'true');
  assert.equal(new Set(events.slice(0, mark).map(({ object }) => object.metadata.name)).size, OBJECTS);
});

test('a watch that is not read ends at its timeout', async () => {
  const session = open();
  const stalled = session.request({ ':path': `${PATH}${LIST}&timeoutSeconds=1` });
  await once(stalled, 'response');
  let bytes = 0;
  stalled.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    stalled.pause();
    setTimeout(() => stalled.resume(), 5);
  });
  await once(stalled, 'end');
  assert.ok(bytes < OBJECTS * OBJECT_BYTES, `${bytes}`);
});

test('150 lists that are not read do not keep their connection from other requests', async () => {
  const session = open();
  const stalled = await Promise.all(Array.from({ length: 150 }, () => opened(session, `${CORE}/configmaps`)));
  assert.equal(await asked(session), 200);
  for (const stream of stalled) stream.close(constants.NGHTTP2_CANCEL);
  assert.equal(await asked(session), 200);
});
