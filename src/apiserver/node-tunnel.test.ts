import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { startApi } from './testing/api.ts';

const api = startApi({ mayDial: () => true });
/** The requests that the node's server got. */
const asked: string[] = [];
/** The number of next requests whose connections the node's server closes, like an idle timeout that expires then. */
let closings = 0;
const node = createServer(
  api.authority.issue({ commonName: 'n1', names: ['127.0.0.1'], usage: 'server' }),
  (incoming, response) => {
    asked.push(`${incoming.method} ${incoming.url}`);
    if (closings > 0) {
      closings--;
      incoming.socket.destroy();
    } else response.end('here');
  },
);
const PROXY = '/api/v1/nodes/n1/proxy';

before(async () => {
  await new Promise<void>((resolve) => node.listen(0, '127.0.0.1', resolve));
  const { port: Port } = node.address() as AddressInfo;
  await api.request('POST', '/api/v1/nodes', { metadata: { name: 'n1' } });
  const status = {
    addresses: [{ type: 'InternalIP', address: '127.0.0.1' }],
    daemonEndpoints: { kubeletEndpoint: { Port } },
  };
  await api.request(
    'PATCH',
    '/api/v1/nodes/n1/status',
    { status },
    {
      'content-type': 'application/merge-patch+json',
    },
  );
});
after(async () => {
  await api.server.close();
  node.closeAllConnections();
  node.close();
});

const ROWS: readonly [what: string, method: string, sent: number][] = [
  ['a GET is sent again', 'GET', 2],
  // Its body can be read only once; it is sent over a connection that nothing else used.
  ['a POST does not meet a closed connection', 'POST', 1],
];
for (const [what, method, sent] of ROWS) {
  test(`a node closes the kept connection: ${what}`, async () => {
    assert.equal((await api.request('GET', `${PROXY}/warm`)).status, 200);
    asked.length = 0;
    closings = method === 'GET' ? 1 : 0;
    assert.equal(
      (await api.request(method, `${PROXY}/again`, method === 'GET' ? undefined : {})).status,
      200,
    );
    assert.deepEqual(asked, Array(sent).fill(`${method} /again`));
  });
}

test('a node that closes every connection is named as the cause', async () => {
  closings = 3;
  const { status, body } = await api.request('GET', `${PROXY}/`);
  closings = 0;
  assert.equal(status, 502);
  assert.match(body.message, /^node n1 does not answer at 127\.0\.0\.1:\d+: /);
});
