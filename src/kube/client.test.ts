import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { ApiError, type Client, createClient, hasReason } from './client.ts';
import { readKubeconfig } from './kubeconfig.ts';
import { jsonAnswer } from './testing/json-answer.ts';
import { httpTransport } from './transport.ts';
import { RESOURCES } from './types.ts';

interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: unknown;
}

/** A real HTTP server that records what it is asked and answers by `answer`. */
async function withServer(
  answer: (request: Seen, response: ServerResponse) => void,
  body: (client: Client, seen: Seen[], url: string) => Promise<void>,
): Promise<void> {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const { method = '', url = '', headers } = request;
    const one = { method, url, headers, body: text === '' ? null : JSON.parse(text) };
    seen.push(one);
    answer(one, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const transport = httpTransport({ server: url, token: 'secret' });
  try {
    await body(createClient(transport, 'tests/1'), seen, url);
  } finally {
    transport.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

const ok = (body: object) => (_request: Seen, response: ServerResponse) => {
  response.setHeader('content-type', 'application/json').end(JSON.stringify(body));
};
const refuse = (response: ServerResponse, code: number, reason: string, more: object = {}) => {
  response.statusCode = code;
  response.end(JSON.stringify({ kind: 'Status', code, reason, message: `it is ${reason}`, ...more }));
};

const REQUESTS: readonly [
  name: string,
  call: (client: Client) => Promise<unknown>,
  method: string,
  url: string,
  contentType: string | undefined,
][] = [
  ['get', (c) => c.get(RESOURCES.pods, 'p', 'n'), 'GET', '/api/v1/namespaces/n/pods/p', undefined],
  ['list all', (c) => c.list(RESOURCES.nodes), 'GET', '/api/v1/nodes', undefined],
  [
    'list with selectors',
    (c) => c.list(RESOURCES.pods, { labelSelector: 'a=b,c', fieldSelector: 'spec.nodeName=x' }),
    'GET',
    '/api/v1/pods?labelSelector=a%3Db%2Cc&fieldSelector=spec.nodeName%3Dx',
    undefined,
  ],
  [
    'create',
    (c) => c.create(RESOURCES.deployments, { metadata: { name: 'd', namespace: 'n' } }),
    'POST',
    '/apis/apps/v1/namespaces/n/deployments',
    'application/json',
  ],
  [
    'update',
    (c) => c.update(RESOURCES.nodes, { metadata: { name: 'a' } }),
    'PUT',
    '/api/v1/nodes/a',
    'application/json',
  ],
  [
    'updateStatus',
    (c) => c.updateStatus(RESOURCES.nodes, { metadata: { name: 'a' } }),
    'PUT',
    '/api/v1/nodes/a/status',
    'application/json',
  ],
  [
    'json patch',
    (c) => c.patch(RESOURCES.nodes, 'a', 'json', []),
    'PATCH',
    '/api/v1/nodes/a',
    'application/json-patch+json',
  ],
  [
    'merge patch of the status',
    (c) => c.patch(RESOURCES.nodes, 'a', 'merge', {}, { subresource: 'status' }),
    'PATCH',
    '/api/v1/nodes/a/status',
    'application/merge-patch+json',
  ],
  [
    'strategic patch',
    (c) => c.patch(RESOURCES.nodes, 'a', 'strategic', {}),
    'PATCH',
    '/api/v1/nodes/a',
    'application/strategic-merge-patch+json',
  ],
  [
    'apply',
    (c) => c.patch(RESOURCES.nodes, 'a', 'apply', {}, { fieldManager: 'm', force: true }),
    'PATCH',
    '/api/v1/nodes/a?fieldManager=m&force=true',
    'application/apply-patch+yaml',
  ],
  [
    'scale',
    (c) => c.scale(RESOURCES.deployments, 'd', 'n', 3),
    'PATCH',
    '/apis/apps/v1/namespaces/n/deployments/d/scale',
    'application/merge-patch+json',
  ],
  [
    'delete',
    (c) => c.delete(RESOURCES.pods, 'p', { namespace: 'n', uid: 'u' }),
    'DELETE',
    '/api/v1/namespaces/n/pods/p',
    'application/json',
  ],
  [
    'deleteCollection',
    (c) => c.deleteCollection(RESOURCES.pods, { namespace: 'n', labelSelector: 'a' }),
    'DELETE',
    '/api/v1/namespaces/n/pods?labelSelector=a',
    'application/json',
  ],
];

test('requests have the paths and bodies of the API', async () => {
  await withServer(ok({ items: [] }), async (client, seen) => {
    for (const [name, call, method, url, contentType] of REQUESTS) {
      await call(client);
      const last = seen.at(-1);
      assert.deepEqual(
        [last?.method, last?.url, last?.headers['content-type']],
        [method, url, contentType],
        name,
      );
      assert.equal(last?.headers.authorization, 'Bearer secret');
      assert.equal(last?.headers['user-agent'], 'tests/1');
    }
    const deletion = seen.find(({ method }) => method === 'DELETE');
    assert.ok(deletion);
    assert.deepEqual((deletion.body as { preconditions: object }).preconditions, { uid: 'u' });
  });
});

test('a list fetches all pages', async () => {
  const page = (request: Seen, response: ServerResponse) => {
    const more = request.url.includes('continue=x');
    const metadata = more ? { resourceVersion: '5' } : { resourceVersion: '5', continue: 'x' };
    ok({ metadata, items: [{ metadata: { name: more ? 'b' : 'a' } }] })(request, response);
  };
  await withServer(page, async (client) => {
    const list = await client.list(RESOURCES.pods, { limit: 1 });
    assert.deepEqual(
      list.items.map(({ metadata }) => metadata?.name),
      ['a', 'b'],
    );
    assert.equal(list.resourceVersion, '5');
  });
});

test('a refusal contains status, reason, details and causes', async () => {
  const causes = [{ field: 'spec.replicas', reason: 'FieldValueInvalid', message: 'must not be negative' }];
  const details = { name: 'd', kind: 'deployments', causes };
  await withServer(
    (_request, response) => refuse(response, 422, 'Invalid', { details }),
    async (client) => {
      await assert.rejects(client.get(RESOURCES.deployments, 'd', 'n'), (error) => {
        assert.ok(hasReason(error, 'Invalid'));
        assert.equal(error.status, 422);
        assert.equal(error.message, 'it is Invalid');
        assert.equal(error.details.name, 'd');
        assert.deepEqual(error.causes, causes);
        return true;
      });
    },
  );
});

test('a response that is not a Status becomes an error with its text', async () => {
  await withServer(
    (_request, response) => {
      response.statusCode = 502;
      response.end('bad gateway');
    },
    async (client) => {
      await assert.rejects(client.get(RESOURCES.nodes, 'a'), (error) => {
        assert.ok(error instanceof ApiError);
        assert.equal(error.status, 502);
        assert.equal(error.message, 'bad gateway');
        return true;
      });
    },
  );
});

test('a request to an overloaded server is retried after the delay that it requests, a limited number of times', async () => {
  const clock = manualClock();
  const asked: number[] = [];
  let busyFor = 2;
  const client = createClient(
    async () => {
      asked.push(clock.now());
      const busy = busyFor-- > 0;
      const body = busy
        ? { kind: 'Status', code: 429, reason: 'TooManyRequests' }
        : { metadata: { name: 'a' } };
      return jsonAnswer(busy ? 429 : 200, body, busy ? { 'retry-after': '2' } : {});
    },
    'tests/1',
    clock,
  );
  const settle = async <T>(promise: Promise<T>) => {
    let done = false;
    const finished = promise.finally(() => {
      done = true;
    });
    finished.catch(() => {});
    while (!done) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(500);
    }
    return finished;
  };
  assert.equal((await settle(client.get(RESOURCES.nodes, 'a'))).metadata?.name, 'a');
  assert.equal(asked.length, 3);
  assert.ok((asked[1] ?? 0) - (asked[0] ?? 0) >= 2000);
  busyFor = 100;
  await assert.rejects(settle(client.get(RESOURCES.nodes, 'a')), (error) =>
    hasReason(error, 'TooManyRequests'),
  );
});

test('a watch yields events wherever lines are split, and throws errors that the server sends', async () => {
  await withServer(
    (_request, response) => {
      const lines =
        `${JSON.stringify({ type: 'ADDED', object: { metadata: { name: 'ä' } } })}\n` +
        `${JSON.stringify({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '9' } } })}\n\n` +
        `${JSON.stringify({ type: 'ERROR', object: { code: 410, reason: 'Expired', message: 'too old' } })}\n`;
      const bytes = Buffer.from(lines);
      for (let i = 0; i < bytes.length; i += 7) response.write(bytes.subarray(i, i + 7));
      response.end();
    },
    async (client) => {
      const types: string[] = [];
      await assert.rejects(
        async () => {
          for await (const event of client.watch(RESOURCES.pods, { resourceVersion: '1' })) {
            types.push(
              `${event.type} ${event.object.metadata?.name ?? event.object.metadata?.resourceVersion}`,
            );
          }
        },
        (error) => hasReason(error, 'Expired'),
      );
      assert.deepEqual(types, ['ADDED ä', 'BOOKMARK 9']);
    },
  );
});

test('an aborted watch ends', async () => {
  await withServer(
    (_request, response) => {
      response.write(`${JSON.stringify({ type: 'ADDED', object: { metadata: { name: 'a' } } })}\n`);
    },
    async (client) => {
      const ending = new AbortController();
      await assert.rejects(async () => {
        for await (const _event of client.watch(RESOURCES.pods, { signal: ending.signal })) ending.abort();
      });
    },
  );
});

test('a token file is read again after a change', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'token-'));
  try {
    await withServer(ok({}), async (_client, seen, url) => {
      const tokenFile = join(folder, 'token');
      let now = 0;
      writeFileSync(tokenFile, 'first\n');
      const transport = httpTransport({ server: url, tokenFile }, { now: () => now });
      const client = createClient(transport, 'tests/1');
      await client.get(RESOURCES.nodes, 'a');
      writeFileSync(tokenFile, 'second\n');
      now = 61_000;
      await client.get(RESOURCES.nodes, 'a');
      transport.close();
      assert.deepEqual(
        seen.map(({ headers }) => headers.authorization),
        ['Bearer first', 'Bearer second'],
      );
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('a user to act as is sent with each request', async () => {
  await withServer(ok({}), async (_client, seen, url) => {
    const headers = { 'impersonate-user': 'jane', 'impersonate-group': ['a', 'b'] };
    const transport = httpTransport({ server: url, token: 'abc', headers });
    await createClient(transport, 'tests/1').get(RESOURCES.nodes, 'a');
    transport.close();
    const [first] = seen;
    assert.equal(first?.headers['impersonate-user'], 'jane');
    assert.equal(first?.headers['impersonate-group'], 'a, b');
    assert.equal(first?.headers.authorization, 'Bearer abc');
  });
});

test('an unreachable server causes an error with its code', async () => {
  const transport = httpTransport({ server: 'http://127.0.0.1:1' });
  await assert.rejects(createClient(transport, 'tests/1').get(RESOURCES.nodes, 'a'), {
    code: 'ECONNREFUSED',
  });
  transport.close();
});

const PEM = '-----BEGIN CERTIFICATE-----';
const encoded = Buffer.from(PEM).toString('base64');
function kubeconfig(
  user: string,
  context = 'main',
  cluster = `server: https://10.0.0.1:6443\n    certificate-authority-data: ${encoded}`,
): string {
  return `apiVersion: v1
kind: Config
current-context: ${context}
clusters:
- name: c
  cluster:
    ${cluster}
contexts:
- name: main
  context: { cluster: c, user: u }
users:
- name: u
  user: ${user}
`;
}
const CONFIGS: readonly [name: string, text: string, expected: object | RegExp][] = [
  [
    'embedded data',
    kubeconfig(`{ client-certificate-data: ${encoded}, client-key-data: ${encoded} }`),
    { server: 'https://10.0.0.1:6443', ca: PEM, cert: PEM, key: PEM },
  ],
  ['a token', kubeconfig('{ token: abc }'), { server: 'https://10.0.0.1:6443', ca: PEM, token: 'abc' }],
  [
    'files in the same folder',
    kubeconfig('{ client-certificate: cert.pem, client-key: cert.pem }'),
    { server: 'https://10.0.0.1:6443', ca: PEM, cert: PEM, key: PEM },
  ],
  ['a missing file', kubeconfig('{ client-certificate: none.pem }'), /client-certificate: .*none.pem/],
  ['an unknown context', kubeconfig('{}', 'other'), /no such context: "other"/],
  ['no server', kubeconfig('{}', 'main', 'certificate-authority: cert.pem'), /server is missing/],
  [
    'an exec plugin',
    kubeconfig('{ exec: { command: aws } }'),
    /exec plugin, which this command does not support/,
  ],
  [
    'a password',
    kubeconfig('{ username: a, password: b }'),
    { server: 'https://10.0.0.1:6443', ca: PEM, headers: { authorization: 'Basic YTpi' } },
  ],
  [
    'another user to act as',
    kubeconfig(
      '{ token: abc, as: jane, as-uid: "7", as-groups: [a, b], as-user-extra: { "example.org/Team": [x, y] } }',
    ),
    {
      server: 'https://10.0.0.1:6443',
      ca: PEM,
      token: 'abc',
      headers: {
        'impersonate-user': 'jane',
        'impersonate-uid': '7',
        'impersonate-group': ['a', 'b'],
        'impersonate-extra-example.org%2fteam': ['x', 'y'],
      },
    },
  ],
  [
    'a proxy',
    kubeconfig('{ token: abc }', 'main', 'server: https://10.0.0.1:6443\n    proxy-url: http://proxy:3128'),
    { server: 'https://10.0.0.1:6443', token: 'abc', proxyUrl: 'http://proxy:3128' },
  ],
  [
    'a proxy of an unknown kind',
    kubeconfig('{ token: abc }', 'main', 'server: https://a\n    proxy-url: ftp://proxy'),
    /cluster c: proxy-url: ftp proxies are not supported/,
  ],
  ['an auth provider', kubeconfig('{ auth-provider: { name: gcp } }'), /auth-provider is not supported/],
  [
    'a server whose certificate is not verified',
    kubeconfig('{ token: abc }', 'main', 'server: https://10.0.0.1:6443\n    insecure-skip-tls-verify: true'),
    { server: 'https://10.0.0.1:6443', insecure: true, token: 'abc' },
  ],
  ['no YAML', '{', /kubeconfig .*: /],
];
for (const [name, text, expected] of CONFIGS) {
  test(`a kubeconfig with ${name}`, () => {
    const folder = mkdtempSync(join(tmpdir(), 'kubeconfig-'));
    try {
      writeFileSync(join(folder, 'config'), text);
      writeFileSync(join(folder, 'cert.pem'), PEM);
      if (expected instanceof RegExp) assert.throws(() => readKubeconfig(join(folder, 'config')), expected);
      else assert.deepEqual(readKubeconfig(join(folder, 'config')), expected);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}
