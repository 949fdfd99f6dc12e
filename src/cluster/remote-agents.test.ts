import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createClient } from '../kube/client.ts';
import type { ApiRequest, Transport } from '../kube/transport.ts';
import { createRemoteAgents, findAgents, type RemoteAgent } from './remote-agents.ts';

const agent = (node: string): RemoteAgent => ({
  node,
  namespace: 'net',
  pod: `fairlead-${node}`,
  port: 10268,
});

/** Answers requests by the first row whose text their path contains. */
function api(rows: readonly (readonly [part: string, status: number, body: unknown])[]): {
  transport: Transport;
  requests: ApiRequest[];
} {
  const requests: ApiRequest[] = [];
  const transport: Transport = async (request) => {
    requests.push(request);
    const [, status = 404, body = { kind: 'Status', reason: 'NotFound', message: 'not found' }] =
      rows.find(([part]) => request.path.includes(part)) ?? [];
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return {
      status,
      headers: {},
      body: (async function* () {
        yield Buffer.from(text);
      })(),
    };
  };
  return { transport, requests };
}

const TOKEN = ['/token', 201, { status: { token: 'secret' } }] as const;
const open = (transport: Transport, now = () => 0) =>
  createRemoteAgents(transport, createClient(transport, 'test'), now);

test('a request goes through pods/proxy with a token for this node; looking and changing have tokens of their own', async () => {
  let now = 0;
  const { transport, requests } = api([TOKEN, ['/proxy/', 200, { ok: true }]]);
  const agents = open(transport, () => now);
  await agents.ask(agent('n1'), 'state');
  await agents.ask(agent('n1'), 'explain', { from: 'a' });
  await agents.ask(agent('n2'), 'state');
  await agents.ask(agent('n1'), 'mode', { mode: 'ebpf' });
  now = 600_000;
  await agents.ask(agent('n1'), 'state');
  const tokens = requests.filter(({ path }) => path.endsWith('/token'));
  const audiences = tokens.map(({ path, body }) => [
    path.split('/').at(-2),
    JSON.parse(String(body)).spec.audiences[0],
  ]);
  assert.deepEqual(audiences, [
    ['fairlead-viewer', 'fairlead-agent/n1'],
    ['fairlead-viewer', 'fairlead-agent/n2'],
    ['fairlead-operator', 'fairlead-agent/n1'],
    ['fairlead-viewer', 'fairlead-agent/n1'],
  ]);
  const asked = requests.filter(({ path }) => path.includes('/proxy/'));
  assert.deepEqual(
    asked.map(({ method, path, headers }) => [
      method,
      path,
      headers['fairlead-token'],
      headers['authorization'],
    ]),
    [
      ['GET', 'fairlead-n1:10268/proxy/fairlead/v1/state'],
      ['POST', 'fairlead-n1:10268/proxy/fairlead/v1/explain'],
      ['GET', 'fairlead-n2:10268/proxy/fairlead/v1/state'],
      ['POST', 'fairlead-n1:10268/proxy/fairlead/v1/mode'],
      ['GET', 'fairlead-n1:10268/proxy/fairlead/v1/state'],
    ].map(([method, path]) => [method, `/api/v1/namespaces/net/pods/https:${path}`, 'secret', undefined]),
  );
});

describe('a refusal names the fix', () => {
  const forbidden = { kind: 'Status', reason: 'Forbidden', message: 'pods/proxy is forbidden' };
  const rows = [
    { name: 'no ServiceAccount', answers: [], hint: /fairlead manifests --for commands/ },
    {
      name: 'no right to its token',
      answers: [['/token', 403, { kind: 'Status', reason: 'Forbidden', message: 'no' }]],
      hint: /--role fairlead-viewer/,
    },
    {
      name: 'no right to pods/proxy',
      answers: [TOKEN, ['/proxy/', 403, forbidden]],
      hint: /create rolebinding/,
    },
    {
      name: 'the port is closed',
      answers: [TOKEN, ['/proxy/', 503, { kind: 'Status', message: 'connection refused' }]],
      hint: /open port 10268 with `fairlead manifests --commands`/,
    },
    {
      name: 'the agent may not review tokens',
      answers: [
        TOKEN,
        ['/proxy/', 503, { message: 'may not create tokenreviews', code: 'not-ready', hint: 'the fix' }],
      ],
      hint: /^the fix$/,
    },
    {
      name: 'an agent that is older than the command',
      answers: [TOKEN, ['/proxy/', 404, { message: 'no such operation: GET /fairlead/v1/state' }]],
      hint: /^update the agents/,
    },
    { name: 'a proxy on the way', answers: [TOKEN, ['/proxy/', 502, '<html>']], hint: /kubectl -n net logs/ },
  ] as const;
  for (const { name, answers, hint } of rows) {
    test(name, async () => {
      const { transport } = api(answers);
      await assert.rejects(open(transport).ask(agent('n1'), 'state'), { hint });
    });
  }
});

describe('the agent of a node', () => {
  const pod = (name: string, fields: Readonly<Record<string, unknown>> = {}) => {
    const {
      node = 'n1',
      phase = 'Running',
      ready = true,
      created = '2026-01-01T00:00:00Z',
      ...meta
    } = fields;
    return {
      metadata: { name, namespace: 'net', creationTimestamp: created, ...meta },
      spec: { nodeName: node },
      status: { phase, conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] },
    };
  };
  const rows: readonly { name: string; pods: readonly object[]; found: readonly string[] | RegExp }[] = [
    {
      name: 'nodes in their order',
      pods: [pod('b', { node: 'n10' }), pod('a', { node: 'n2' })],
      found: ['a:10268', 'b:10268'],
    },
    {
      name: 'the ready one of two',
      pods: [pod('new', { created: '2026-02-01T00:00:00Z', ready: false }), pod('old')],
      found: ['old:10268'],
    },
    {
      name: 'the newest of two that are not ready',
      pods: [pod('new', { created: '2026-02-01T00:00:00Z', ready: false }), pod('old', { ready: false })],
      found: ['new:10268'],
    },
    {
      name: 'none that ends',
      pods: [pod('old', { deletionTimestamp: '2026-02-01T00:00:00Z' }), pod('new', { ready: false })],
      found: ['new:10268'],
    },
    {
      name: 'another port',
      pods: [pod('a', { annotations: { 'fairlead.dev/commands-port': '443' } })],
      found: ['a:443'],
    },
    {
      name: 'none',
      pods: [pod('a', { phase: 'Pending' })],
      found: /no pod with the label .* runs in this cluster/,
    },
  ];
  for (const { name, pods, found } of rows) {
    test(name, async () => {
      const { transport } = api([['/pods', 200, { metadata: {}, items: pods }]]);
      const find = findAgents(createClient(transport, 'test'), null);
      if (found instanceof RegExp) await assert.rejects(find, found);
      else
        assert.deepEqual(
          (await find).map((one) => `${one.pod}:${one.port}`),
          found,
        );
    });
  }
});
