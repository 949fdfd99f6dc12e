import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { checkLoopbackPort, listenOnLoopback } from './loopback-listeners.ts';
import { forwardToService } from './service-forwarding.ts';
import type { ServiceRoute } from './service-port.ts';

const SERVICE = { namespace: 'shop', name: 'web', port: 80 };
const NODES = [
  { name: 'node-1', netns: null },
  { name: 'node-2', netns: null },
];

/** Starts a server in place of the Service; returns its port. */
async function serve(t: TestContext, onConnection: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    // Connections that are open at the end of a test are reset.
    socket.on('error', () => {});
    onConnection(socket);
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Forwards a free port; returns it with the reported failures. */
function forward(t: TestContext, route: () => ServiceRoute) {
  const failures: string[] = [];
  const listeners = listenOnLoopback(0);
  const forwarding = forwardToService({
    listeners,
    service: SERVICE,
    route,
    nodes: () => NODES,
    clock: systemClock,
    onFailure: (failure) => failures.push(failure),
  });
  t.after(() => forwarding.close());
  return { port: listeners.port, failures, close: () => forwarding.close() };
}

const to = (port: number, rest: Partial<ServiceRoute> = {}): ServiceRoute => ({
  addresses: ['127.0.0.1'],
  port,
  nodes: null,
  readyEndpoints: 1,
  ...rest,
});

for (const host of ['127.0.0.1', '::1']) {
  test(`${host}: the server reads the client's end and then answers over the same connection`, async (t) => {
    const server = await serve(t, (socket) => {
      text(socket).then((request) => socket.end(`${request.length} bytes`));
    });
    const { port, failures } = forward(t, () => to(server));
    const client = connect({ port, host, allowHalfOpen: true });
    // More than the buffers on the way hold.
    client.end('x'.repeat(5_000_000));
    assert.equal(await text(client), '5000000 bytes');
    assert.deepEqual(failures, []);
  });
}

const FAILURES: readonly { name: string; route: (closed: number) => ServiceRoute; says: RegExp }[] = [
  {
    name: 'every node refuses',
    route: (closed) => to(closed),
    says: /^svc\/shop\/web:80: connection closed: 127\.0\.0\.1:\d+ from node-1: refused; 1 more attempts failed$/,
  },
  {
    name: 'the Service has no ready endpoints',
    route: (closed) => to(closed, { readyEndpoints: 0 }),
    says: /Service shop\/web has no ready endpoints/,
  },
  {
    name: 'no node may deliver',
    route: (closed) => to(closed, { nodes: [] }),
    says: /no node is able to deliver/,
  },
  {
    name: 'the Service does not exist',
    route: () => {
      throw new FairleadError('no such Service: shop/web', { op: 'find Service', code: 'not-found' });
    },
    says: /no such Service: shop\/web/,
  },
];
for (const { name, route, says } of FAILURES) {
  test(`${name}: the connection is reset, and its cause is named once`, async (t) => {
    const free = listenOnLoopback(0);
    const { port: closed } = free;
    t.after(() => forwardToService({ ...unused, listeners: free }).close());
    // Nothing accepts on 127.0.0.2.
    const { port, failures } = forward(t, () => {
      const wanted = route(closed);
      return { ...wanted, addresses: ['127.0.0.2'] };
    });
    const client = connect({ port, host: '127.0.0.1' });
    const [error] = await once(client, 'error');
    assert.ok(hasCode(error, 'ECONNRESET'));
    assert.equal(failures.length, 1);
    assert.match(failures[0]?.replace('127.0.0.2', '127.0.0.1') ?? '', says);
  });
}

const unused = {
  service: SERVICE,
  route: () => to(1),
  nodes: () => [],
  clock: systemClock,
  onFailure: () => {},
};

test('a node that refuses does not end the connection if another node accepts', async (t) => {
  const server = await serve(t, (socket) => socket.end('hello'));
  const { port, failures } = forward(t, () => to(server, { addresses: ['127.0.0.2', '127.0.0.1'] }));
  assert.equal(await text(connect({ port, host: '127.0.0.1' })), 'hello');
  assert.deepEqual(failures, []);
});

test('a reset by the server reaches the client; other connections continue', async (t) => {
  const sockets: Socket[] = [];
  const server = await serve(t, (socket) => {
    sockets.push(socket);
    socket.write('hello');
  });
  const { port } = forward(t, () => to(server));
  const [first, second] = [connect({ port, host: '127.0.0.1' }), connect({ port, host: '127.0.0.1' })];
  await Promise.all([once(first, 'data'), once(second, 'data')]);
  await eventually(
    () => sockets.length,
    (count) => count === 2,
  );
  const failed = Promise.race([once(first, 'error'), once(second, 'error')]);
  sockets[0]?.resetAndDestroy();
  const [error] = await failed;
  assert.ok(hasCode(error, 'ECONNRESET'));
  const alive = first.destroyed ? second : first;
  sockets[1]?.end('bye');
  assert.equal(await text(alive), 'bye');
});

test('after close, the port is free and connections are reset', async (t) => {
  const server = await serve(t, (socket) => socket.write('hello'));
  const { port, close } = forward(t, () => to(server));
  const client = connect({ port, host: '127.0.0.1' });
  await once(client, 'data');
  assert.throws(() => checkLoopbackPort(port), /port \d+ of this machine is in use/);
  const failed = once(client, 'error');
  close();
  assert.ok(hasCode((await failed)[0], 'ECONNRESET'));
  checkLoopbackPort(port);
});
