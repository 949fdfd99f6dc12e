import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { endpoint, frontend, serviceMap } from '../dataplane/testing/service-map.ts';
import type { FlowsEntry } from '../flows/flow-line.ts';
import { explainRequest } from '../gateway/explain-request.ts';
import { readRequestGateways } from '../gateway/request-gateways.ts';
import { readRequestUrl } from '../gateway/request-url.ts';
import { ingress, ingressClass, ingressPath, objects, service } from '../gateway/testing/objects.ts';
import type { Client } from '../kube/client.ts';
import { compareModes } from '../modes/comparison.ts';
import { ask, view } from '../observe/testing/explain-scene.ts';
import { commandOpenApi } from './command-openapi.ts';
import { COMMAND_OPERATIONS, COMMAND_ROOT, commandPaths } from './command-paths.ts';
import { planCluster } from './plan.ts';

const folder = mkdtempSync(join(tmpdir(), 'fairlead-openapi-'));
process.env['FAIRLEAD_STATE'] = folder;
after(() => rmSync(folder, { recursive: true, force: true }));

const document = commandOpenApi();
const schemas = closed(document.components.schemas) as typeof document.components.schemas;
const ajv = new Ajv2020({ allErrors: true, strict: false, formats: { 'date-time': true } });
ajv.addSchema({ $id: 'commands', components: { schemas } });

/** Objects have no further fields than those of the document, unless it says so: an undocumented field is found. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== 'object' || schema === null) return schema;
  const fields = Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, closed(value)]));
  const isObject = fields['type'] === 'object' && 'properties' in fields;
  return isObject && !('additionalProperties' in fields)
    ? { ...fields, additionalProperties: false }
    : fields;
}

function assertValid(name: keyof typeof schemas, value: unknown): void {
  const validate = ajv.compile({ $ref: `commands#/components/schemas/${name}` });
  // As it is sent.
  validate(JSON.parse(JSON.stringify(value)));
  assert.deepEqual(validate.errors ?? [], []);
}

test('the document lists every operation, and no other', () => {
  const listed = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path.slice(COMMAND_ROOT.length + 1)}`),
  );
  assert.deepEqual(listed.sort(), [...COMMAND_OPERATIONS].sort());
});

test('every reference leads to a schema, and every schema is used', () => {
  const text = JSON.stringify(document);
  const used = [...text.matchAll(/#\/components\/schemas\/(\w+)/g)].map(([, name = '']) => name);
  assert.deepEqual([...new Set(used)].sort(), Object.keys(schemas).sort());
});

describe('answers of the handlers are valid', () => {
  const client = { list: async () => ({ items: [] }) } as unknown as Client;
  const handler = commandPaths('one', () => client);
  const answer = async (operation: string, body: unknown = null) => {
    const [method = '', path = ''] = operation.split(' ');
    const url = new URL(`https://cluster${COMMAND_ROOT}/${path}`);
    const response = await handler({
      method,
      path: url.pathname,
      query: url.searchParams,
      body: async () => Buffer.from(JSON.stringify(body)),
      signal: new AbortController().signal,
    } as unknown as Parameters<typeof handler>[0]);
    assert.ok(response);
    return { status: response.status, value: JSON.parse(String(response.body)) as unknown };
  };
  const plan = planCluster(
    {
      ...{
        name: 'one',
        nodes: 2,
        mode: 'nftables',
        ipFamily: 'dual',
        overlay: 'routes',
        authorization: 'RBAC',
      },
      ...{ podCidr: null, serviceCidr: null, maxPods: 250, lbPool: null, hostAccess: 'none', egress: false },
      ...{
        publishedPorts: [],
        realControlPlane: null,
        proxy: { masqueradeAll: false, localDetection: true },
      },
      apiPort: 6443,
    },
    [],
    '0.1.0',
    new Date('2026-01-01'),
  );

  test('GET cluster, without and with records of processes', async () => {
    mkdirSync(join(folder, 'one'));
    writeFileSync(join(folder, 'one', 'cluster.json'), JSON.stringify({ ...plan, isCreated: true }));
    const { status, value } = await answer('GET cluster');
    assert.equal(status, 200);
    assertValid('ClusterReport', value);
    const identity = { pid: 1, startTime: '2' };
    const record = {
      identity,
      startedAt: 1,
      restarts: 1,
      failures: 0,
      lastExit: { at: 1, reason: 'signal 9' },
      startAt: null,
    };
    const processes = { 'control-plane': record };
    writeFileSync(
      join(folder, 'one', 'processes.json'),
      JSON.stringify({ supervisor: null, standby: null, processes }),
    );
    const { value: report } = await answer('GET cluster');
    assertValid('ClusterReport', report);
    assert.match(JSON.stringify(report), /signal 9/);
  });
  test('GET faults of nodes that are stopped', async () => {
    const { status, value } = await answer('GET faults');
    assert.equal(status, 400);
    assertValid('CommandRefusal', value);
  });
  const REFUSED: readonly (readonly [operation: string, body: unknown, message: RegExp])[] = [
    ['POST explain', { from: 1 }, /from and to must be strings/],
    ['POST faults', { kind: 'cutt', target: 'node-1' }, /kind must be one of/],
    ['POST faults', { kind: 'slow', target: 'node-1', delayMs: 0 }, /delayMs/],
    ['POST mode', { mode: 'nftable' }, /mode must be one of/],
    ['POST modes', { name: 'web' }, /namespace and name must be strings/],
    ['POST object', {}, /node and object must be strings/],
    ['GET nodes/node-9/flows', null, /no such node: node-9/],
  ];
  for (const [operation, body, message] of REFUSED) {
    test(`${operation} ${JSON.stringify(body)} is refused`, async () => {
      const { status, value } = await answer(operation, body);
      assert.equal(status, 400);
      assertValid('CommandRefusal', value);
      assert.match((value as { message: string }).message, message);
    });
  }
  test('an unknown operation is not found', async () => {
    const { status, value } = await answer('POST cluster');
    assert.equal(status, 404);
    assertValid('CommandRefusal', value);
  });
});

describe('what the handlers pass on is valid', () => {
  test('explanations', () => {
    for (const to of ['web:80', 'svc/shop/web:80', '10.96.0.99:80', '10.244.9.9:80'])
      assertValid('Explanation', ask(view(), 'shop/client-1', to));
  });
  test('explanations of URLs that a gateway has', () => {
    const gateways = readRequestGateways(
      objects({
        ingressClasses: [ingressClass()],
        services: [service('web')],
        ingresses: [
          ingress('shop', [
            { host: 'shop.example', paths: [ingressPath('/', 'web'), ingressPath('/none', 'none')] },
          ]),
          ingress('late', [{ host: 'shop.example', paths: [ingressPath('/', 'web')] }], { age: 1 }),
        ],
      }),
    );
    const way = { gateway: 'ingress/fairlead', others: [], address: null, source: null };
    for (const text of ['http://shop.example/a?b', 'http://shop.example/none', 'http://a.example:81/']) {
      const url = readRequestUrl(text);
      assert.ok(url);
      const gateway = explainRequest(gateways, url, way);
      assertValid('Explanation', { ...ask(view(), 'shop/client-1', 'web:80'), gateway });
    }
  });
  test('a Service in every mode', () => {
    const web = frontend({
      kind: 'ClusterIP',
      service: 'web',
      address: '10.96.0.9',
      port: 80,
      endpoints: [endpoint('10.244.1.2', 8080)],
    });
    const map = serviceMap([web]);
    const comparison = compareModes({
      map,
      namespace: 'shop',
      name: 'web',
      inUse: 'nftables',
      nodeIn: () => map.node,
      listenerOf: () => null,
      unavailable: new Map([['ipvs', { reason: 'this kernel does not support IPVS', fix: null }]]),
      drifts: ['a'],
    });
    assert.ok(comparison);
    assertValid('ModeComparison', comparison);
  });
  const client = { ip: '10.244.0.3', port: 4711 };
  const entries: readonly FlowsEntry[] = [
    {
      ...{
        type: 'flow',
        time: '2026-01-01T00:00:00.000Z',
        kind: 'established',
        verdict: 'delivered',
        protocol: 'TCP',
      },
      ...{ client, service: { ip: '10.96.0.1', port: 80, name: 'default/web:http' } },
      ...{ endpoint: { ip: '10.244.0.4', port: 8080 }, proxy: null, micros: 40, reason: null },
    },
    {
      ...{
        type: 'dns',
        time: '2026-01-01T00:00:00.000Z',
        kind: 'dns',
        verdict: 'not-found',
        client,
        micros: 40,
      },
      ...{
        server: { ip: '10.96.0.10', port: 53 },
        name: 'web.',
        types: ['A'],
        answers: [],
        rcode: 'NXDOMAIN',
      },
      ...{ tried: [], questions: 1 },
    },
    { type: 'notice', text: 'a' },
  ];
  for (const entry of entries) test(`a ${entry.type} of flows`, () => assertValid('FlowsEntry', entry));
});

test('the requests of the commands are valid', () => {
  assertValid('ExplainRequest', { from: 'client', to: 'hello', family: null });
  assertValid('FaultRequest', { kind: 'cut', target: 'node-1' });
  assertValid('ModesQuestion', { namespace: 'default', name: 'web' });
});
