import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:https';
import { type AddressInfo, createServer, type Socket, connect as tcpConnect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { connect as tlsConnect } from 'node:tls';
import { createCommandAuthorization } from '../src/agent/command-authorization.ts';
import { startCommandPort } from '../src/agent/command-port.ts';
import { audienceOf, TOKEN_HEADER } from '../src/agent/command-rights.ts';
import { startApi } from '../src/apiserver/testing/api.ts';
import { commandAccessObjects } from '../src/cli/command-access-objects.ts';
import { createClient } from '../src/kube/client.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { sendHostileRequests } from '../src/lib/testing/hostile-http.ts';

/** The port for commands of an agent on node-1, with the API server that authorizes them. */

const api = startApi();
const AGENT = 'system:serviceaccount:kube-system:fairlead';
const PLURALS: Readonly<Record<string, string>> = {
  ServiceAccount: '/api/v1/namespaces/kube-system/serviceaccounts',
  ClusterRole: '/apis/rbac.authorization.k8s.io/v1/clusterroles',
  ClusterRoleBinding: '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',
  Role: '/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles',
};

const clientAs = (user: string) =>
  createClient(
    (asked) => api.server.transport({ ...asked, headers: { ...asked.headers, 'impersonate-user': user } }),
    'test',
  );

interface Port {
  readonly port: number;
  close(): void;
}

async function openPort(user = AGENT): Promise<Port> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  const { close } = startCommandPort({
    bind: `127.0.0.1:${port}`,
    node: 'node-1',
    authorization: createCommandAuthorization(clientAs(user), 'node-1', systemClock),
    clock: systemClock,
    logger: silentLogger,
    handlers: {
      state: () => ({ node: 'node-1' }),
      mode: (body) => body,
      explain: (body) => body,
      modes: () => {
        throw new TypeError('a fault of the agent');
      },
      fact: (body) => body,
      settings: () => ({}),
      decide: (body) => body,
      verify: () => ({}),
      probe: (body) => body,
      capture: async (body, response) => void response.end(JSON.stringify(body)),
      trace: async (body, response) => void response.end(JSON.stringify(body)),
      flows: (query, response) => response.end(`${query}\n`),
    },
  });
  await eventually(
    () => ask({ port }, 'GET', 'none').catch(() => null),
    (answer) => answer !== null,
  );
  return { port, close };
}

function ask(
  { port }: Pick<Port, 'port'>,
  method: string,
  path: string,
  {
    token,
    body,
    localAddress,
  }: { readonly token?: string; readonly body?: string; readonly localAddress?: string } = {},
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const headers = token === undefined ? {} : { [TOKEN_HEADER]: token };
    const call = request(
      {
        host: '127.0.0.1',
        port,
        method,
        path: `/fairlead/v1/${path}`,
        headers,
        agent: false,
        rejectUnauthorized: false,
        ...(localAddress === undefined ? {} : { localAddress }),
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    call.on('error', reject);
    call.end(body);
  });
}

async function tokenOf(account: string, audience = audienceOf('node-1')): Promise<string> {
  const answer = await api.request(
    'POST',
    `/api/v1/namespaces/kube-system/serviceaccounts/${account}/token`,
    {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: { audiences: [audience], expirationSeconds: 600 },
    },
  );
  assert.equal(answer.status, 201, JSON.stringify(answer.body));
  return answer.body.status.token;
}

let port: Port;
before(async () => {
  for (const object of commandAccessObjects('kube-system')) {
    const answer = await api.request('POST', PLURALS[String(object['kind'])] ?? '', object);
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
  }
  await api.request('POST', PLURALS['ServiceAccount'] ?? '', {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { name: 'guest' },
  });
  port = await openPort();
});
after(() => {
  port.close();
  api.server.close();
});

const forged = (audience: string) =>
  `e30.${Buffer.from(JSON.stringify({ aud: [audience] })).toString('base64url')}.c2ln`;

describe('who may do what', () => {
  const rows: readonly {
    readonly name: string;
    readonly token: () => Promise<string | undefined> | string | undefined;
    readonly ask?: readonly [method: string, path: string, body?: string];
    readonly status: number;
    readonly text?: RegExp;
  }[] = [
    { name: 'no token', token: () => undefined, status: 401, text: /no token/ },
    { name: 'a text that is not a token', token: () => 'secret', status: 401, text: /not valid/ },
    { name: 'a forged token', token: () => forged('fairlead-agent/node-1'), status: 401, text: /not valid/ },
    {
      name: "a token for another node's agent",
      token: () => tokenOf('fairlead-operator', 'fairlead-agent/node-2'),
      status: 401,
      text: /audience fairlead-agent\/node-1/,
    },
    {
      name: 'a token for the API server',
      token: () => tokenOf('fairlead-operator', 'https://kubernetes.default.svc.cluster.local'),
      status: 401,
    },
    { name: 'an account without rights', token: () => tokenOf('guest'), status: 403, text: /may not get/ },
    { name: 'a viewer looks', token: () => tokenOf('fairlead-viewer'), status: 200, text: /node-1/ },
    {
      name: 'a viewer asks',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['POST', 'explain', '{"from":"a"}'],
      status: 200,
      text: /"from":"a"/,
    },
    {
      name: 'a viewer reads flows',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['GET', 'flows?follow=false'],
      status: 200,
      text: /follow=false/,
    },
    {
      name: 'a viewer changes the mode',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['POST', 'mode', '{"mode":"ebpf"}'],
      status: 403,
      text: /fairlead-viewer may not update \/fairlead\/v1\/mode/,
    },
    {
      name: 'a viewer sends packets',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['POST', 'probe', '{}'],
      status: 403,
    },
    {
      name: 'a viewer captures packets',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['POST', 'capture', '{}'],
      status: 403,
    },
    {
      name: 'an operator captures packets',
      token: () => tokenOf('fairlead-operator'),
      ask: ['POST', 'capture', '{"pods":[]}'],
      status: 200,
      text: /"pods":\[\]/,
    },
    {
      name: 'a viewer traces',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['POST', 'trace', '{}'],
      status: 403,
      text: /fairlead-viewer may not update \/fairlead\/v1\/trace/,
    },
    {
      name: 'an operator traces',
      token: () => tokenOf('fairlead-operator'),
      ask: ['POST', 'trace', '{"pods":[]}'],
      status: 200,
      text: /"pods":\[\]/,
    },
    {
      name: 'an operator changes the mode',
      token: () => tokenOf('fairlead-operator'),
      ask: ['POST', 'mode', '{"mode":"ebpf"}'],
      status: 200,
      text: /ebpf/,
    },
    { name: 'an operator looks', token: () => tokenOf('fairlead-operator'), status: 200 },
    {
      name: 'an unknown operation',
      token: () => tokenOf('fairlead-operator'),
      ask: ['GET', 'secrets'],
      status: 404,
    },
    {
      name: 'another method',
      token: () => tokenOf('fairlead-operator'),
      ask: ['GET', 'mode'],
      status: 404,
    },
    {
      name: 'a body that is not JSON',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['POST', 'explain', '{'],
      status: 400,
      text: /not JSON/,
    },
    {
      name: 'a fault of the agent',
      token: () => tokenOf('fairlead-viewer'),
      ask: ['POST', 'modes', '{}'],
      status: 500,
      text: /a fault of the agent/,
    },
  ];
  for (const row of rows) {
    test(`${row.name}: ${row.status}`, async () => {
      const token = await row.token();
      const [method, path, body] = row.ask ?? ['GET', 'state'];
      const answer = await ask(port, method, path, {
        ...(token === undefined ? {} : { token }),
        ...(body === undefined ? {} : { body }),
      });
      assert.equal(answer.status, row.status, answer.text);
      assert.match(answer.text, row.text ?? /./);
    });
  }
});

test('an agent that may not review tokens says which permission is missing, and how to give it', async () => {
  const own = await openPort('system:serviceaccount:kube-system:guest');
  try {
    const { status, text } = await ask(own, 'GET', 'state', { token: await tokenOf('fairlead-viewer') });
    assert.equal(status, 503);
    assert.match(text, /may not create tokenreviews\.authentication\.k8s\.io/);
    assert.match(text, /fairlead manifests --for commands/);
  } finally {
    own.close();
  }
});

test('tokens for other audiences are not reviewed, and a known token is reviewed once', async () => {
  const reviewed: string[] = [];
  const client = {
    request: async (_method: string, path: string) => {
      reviewed.push(path.split('/').at(-1) ?? '');
      const user = { username: 'alice' };
      return { status: { authenticated: true, allowed: true, user, audiences: [audienceOf('node-1')] } };
    },
  };
  const authorization = createCommandAuthorization(client as never, 'node-1', systemClock);
  for (const token of [undefined, '', 'x', 'a.b.c', forged('fairlead-agent/node-2'), 'x'.repeat(20_000)])
    await assert.rejects(authorization.authorize(token, 'get', '/fairlead/v1/state'), { status: 401 });
  assert.deepEqual(reviewed, []);
  const token = forged('fairlead-agent/node-1');
  const once = () => authorization.authorize(token, 'get', '/fairlead/v1/state');
  assert.deepEqual(await Promise.all([once(), once(), once()]), ['alice', 'alice', 'alice']);
  assert.deepEqual(reviewed, ['tokenreviews', 'subjectaccessreviews']);
  await authorization.authorize(token, 'update', '/fairlead/v1/mode');
  assert.equal(reviewed.length, 4);
});

test('a body that is too large is not read to its end', async () => {
  const token = await tokenOf('fairlead-viewer');
  // The connection may be closed before the client has written it all and reads the answer.
  const large = ask(port, 'POST', 'explain', { token, body: `"${'x'.repeat(5 << 20)}"` });
  assert.equal((await large.catch(() => ({ status: 400 }))).status, 400);
  assert.equal((await ask(port, 'POST', 'explain', { token, body: '"x"' })).status, 200);
});

test('no request stops the port', async () => {
  const words = ['fairlead', 'v1', 'state', 'flows', 'explain', 'mode'];
  await sendHostileRequests(
    () => tlsConnect({ port: port.port, host: '127.0.0.1', rejectUnauthorized: false }),
    { words, rounds: 150 },
  );
  await sendHostileRequests(() => tcpConnect({ port: port.port, host: '127.0.0.1' }), { words, rounds: 50 });
  const { status } = await ask(port, 'GET', 'state', { token: await tokenOf('fairlead-viewer') });
  assert.equal(status, 200);
});

test('clients with silent connections leave room for others, and end none that has shown a token', async () => {
  const own = await openPort();
  const token = await tokenOf('fairlead-viewer');
  const silent = new Set<Socket>();
  const dial = (localAddress: string) => {
    const socket = tcpConnect({ port: own.port, host: '127.0.0.1', localAddress });
    silent.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => silent.delete(socket));
  };
  try {
    for (let i = 0; i < 100; i++) dial('127.0.0.2');
    await eventually(() => silent.size === 16);
    for (let client = 10; client < 20; client++) for (let i = 0; i < 16; i++) dial(`127.0.0.${client}`);
    await eventually(() => silent.size === 64);
    const { status } = await ask(own, 'GET', 'state', { token, localAddress: '127.0.0.3' });
    assert.equal(status, 200);
  } finally {
    for (const socket of silent) socket.destroy();
    own.close();
  }
});

test('a client that connects without end is refused, and others are answered', async () => {
  const own = await openPort();
  const token = await tokenOf('fairlead-viewer');
  const connects = (localAddress: string) =>
    new Promise<boolean>((resolve) => {
      const raw = tcpConnect({ port: own.port, host: '127.0.0.1', localAddress });
      const socket = tlsConnect({ socket: raw, rejectUnauthorized: false });
      socket.once('secureConnect', () => {
        resolve(true);
        socket.destroy();
      });
      socket.once('error', () => resolve(false));
    });
  try {
    const accepted = await Promise.all(Array.from({ length: 400 }, () => connects('127.0.0.2')));
    assert.ok(accepted.includes(false));
    const { status } = await ask(own, 'GET', 'state', { token, localAddress: '127.0.0.3' });
    assert.equal(status, 200);
  } finally {
    own.close();
  }
});
