import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { serviceNameOf } from '../gateway/gateway-service.ts';
import type { GatewayObject } from '../gateway/objects.ts';
import {
  gateway,
  gatewayClass,
  ingress,
  ingressClass,
  ingressPath,
  listener,
  object,
  prefix,
  route,
  rule,
  service,
} from '../gateway/testing/objects.ts';
import { ApiError, type Client } from '../kube/client.ts';
import type { Resource } from '../kube/types.ts';
import { aroundPacket, renderRequest } from '../observe/explain-request-text.ts';
import { renderShort } from '../observe/explain-text.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import { explainUrl } from './explain-url.ts';

const GATEWAY = '192.0.2.1';
const gatewayService = (key: string, outer: string, inner: string): GatewayObject => ({
  ...object(
    serviceNameOf(key),
    { clusterIPs: [inner] },
    { namespace: 'fairlead-gateways', annotations: { 'fairlead.dev/gateway': key } },
  ),
  status: { loadBalancer: { ingress: [{ ip: outer }] } },
});
const web = object('web', { clusterIPs: ['10.96.0.9'], ports: [{ name: 'http', port: 80 }] });

const OBJECTS: Readonly<Record<string, readonly GatewayObject[]>> = {
  'ingressclasses v1': [ingressClass()],
  'ingresses v1': [
    ingress('shop', [
      { host: 'shop.example', paths: [ingressPath('/', 'web')] },
      { paths: [ingressPath('/any', 'web')] },
    ]),
  ],
  'services v1': [web, gatewayService('ingress/fairlead', GATEWAY, '10.96.0.1')],
};

/** Lists objects by "PLURAL VERSION"; other kinds are not served. "forbidden": may not be listed. */
function cluster(
  objects: Readonly<Record<string, readonly GatewayObject[] | 'forbidden'>>,
  resolved: Readonly<Record<string, string>> = {},
  secretStatus = 404,
) {
  const listed: string[] = [];
  const asked: string[] = [];
  const client = {
    async list({ plural, version }: Resource) {
      listed.push(`${plural} ${version}`);
      const items = objects[`${plural} ${version}`];
      if (items === undefined) throw new ApiError(404, {}, null, plural);
      if (items === 'forbidden') throw new ApiError(403, {}, null, plural);
      return { items, resourceVersion: '1' };
    },
    async get({ plural }: Resource) {
      throw new ApiError(secretStatus, {}, null, plural);
    },
  } as unknown as Client;
  const explain = async ({ from, to }: ExplainRequest): Promise<Explanation> => {
    asked.push(to);
    const host = /^https?:\/\/([^/:]+)/.exec(to)?.[1] ?? to.replace(/:.*/, '');
    const destination = resolved[host] ?? (/^[0-9.]+$/.test(host) ? host : null);
    const packet = destination && {
      ...{ source: '198.51.100.7', sourceClass: 'external', destination, port: 80 },
      ...{ protocol: 'TCP', node: 'node-1' },
    };
    const endpoints = [
      {
        address: '172.30.0.11',
        port: 27_000,
        node: 'node-1',
        pod: null,
        odds: 1,
        arrival: 'answered',
        clientSeen: null,
      },
    ];
    const rest = { clientSeen: null, verdict: 'delivered', reason: '', causes: [], steps: [] };
    const more = { missing: [], askNode: null };
    return {
      from,
      to,
      packet,
      endpoints: packet ? endpoints : [],
      ...rest,
      ...more,
    } as unknown as Explanation;
  };
  const ask = (to: string, from = 'outside') =>
    explainUrl({ from, to, family: null }, () => client, { explain });
  return { listed, asked, ask };
}

describe('URLs that a gateway has', () => {
  test('by a name that does not resolve: the path is that to the address', async () => {
    const { ask, asked } = cluster(OBJECTS);
    const { gateway: explained, to, packet } = await ask('http://shop.example/a');
    assert.deepEqual(asked, ['http://shop.example/a', `${GATEWAY}:80/tcp`]);
    assert.equal(to, 'http://shop.example/a');
    assert.equal(packet?.destination, GATEWAY);
    assert.ok(explained);
    assert.equal(
      renderRequest(explained),
      `GET http://shop.example/a → ingress/fairlead (${GATEWAY}:80)
  listener  http
  route     Ingress default/shop, rule 0
  match     host shop.example, path prefix /
  backend   Service default/web:80, 100 %
  note      from outside, shop.example does not resolve there: the path to the gateway's address is explained (curl --resolve shop.example:80:${GATEWAY})
`,
    );
    assert.equal(explained.next, 'fairlead explain node/node-1 svc/default/web:80');
  });
  test('by a name that resolves to the gateway: one explanation, without a note', async () => {
    const { ask, asked } = cluster(OBJECTS, { 'shop.example': GATEWAY, 'any.example': GATEWAY });
    assert.deepEqual((await ask('http://shop.example/')).gateway?.notes, []);
    assert.deepEqual(asked, ['http://shop.example/']);
    const other = await ask('http://any.example/any');
    assert.deepEqual(other.gateway?.match?.hostname, '');
  });
  test('by a name that resolves to another host', async () => {
    const { ask } = cluster(OBJECTS, { 'shop.example': '203.0.113.5' });
    const { gateway: explained } = await ask('http://shop.example/');
    assert.match(
      explained?.notes[0] ?? '',
      /shop\.example is 203\.0\.113\.5 there, which is not the gateway/,
    );
  });
  test('by address, also the cluster IP', async () => {
    const { ask, asked } = cluster(OBJECTS);
    assert.equal((await ask(`http://${GATEWAY}/any/x`, 'client')).gateway?.result, 'forwarded');
    assert.equal((await ask('http://10.96.0.1/none', 'client')).gateway?.status, 404);
    assert.equal(asked.length, 2);
  });
  test('a gateway without an address is said', async () => {
    const { ask, asked } = cluster({ ...OBJECTS, 'services v1': [service('web')] });
    const { gateway: explained, packet } = await ask('http://shop.example/');
    assert.equal(packet, null);
    assert.equal(explained?.address, null);
    assert.deepEqual(explained?.notes, ['ingress/fairlead has no address yet']);
    assert.equal(explained?.next, null);
    assert.equal(asked.length, 1);
  });
  test('the kinds of the Gateway API are listed in the version that is served', async () => {
    const { ask, listed } = cluster({
      ...OBJECTS,
      'gatewayclasses v1': [gatewayClass()],
      'gateways v1beta1': [gateway('gw', [listener('http', { hostname: '*.test' })])],
      'httproutes v1': [route('r', [rule('web')])],
      'namespaces v1': [object('default', {})],
    });
    const { gateway: explained } = await ask('http://a.test/');
    assert.equal(explained?.gateway, 'gateway/default/gw');
    assert.equal(explained?.result, 'forwarded');
    assert.ok(listed.includes('gateways v1beta1') && !listed.includes('gateways v1alpha2'));
  });
  const secrets: readonly (readonly [status: number, unaccepted: readonly string[], notes: RegExp])[] = [
    [404, ['NoCertificate spec.tls[0].secretName'], /does not resolve/],
    [403, [], /^not allowed to read: Secret default\/tls/],
  ];
  for (const [status, unaccepted, note] of secrets)
    test(`a certificate whose Secret is answered with ${status}`, async () => {
      const tls = { tls: [{ hosts: ['tls.example'], secretName: 'tls' }] };
      const rules = [{ host: 'tls.example', paths: [ingressPath('/', 'web')] }];
      const { ask } = cluster({ ...OBJECTS, 'ingresses v1': [ingress('tls', rules, {}, tls)] }, {}, status);
      const { gateway: explained } = await ask('https://tls.example/');
      assert.equal(explained?.result, 'forwarded');
      assert.deepEqual(
        explained.unaccepted.map(({ reason, field }) => `${reason} ${field}`),
        unaccepted,
      );
      assert.match(explained.notes.at(-1) ?? '', note);
    });
  test('what may not be listed is said', async () => {
    const denied = { ...OBJECTS, 'httproutes v1': 'forbidden' } as const;
    const { gateway: explained } = await cluster(denied).ask('http://shop.example/');
    assert.match(explained?.notes.at(-1) ?? '', /^not allowed to read: httproutes/);
  });
});

test('the example of docs/gateway.md is what is printed', async () => {
  const document = readFileSync(join(import.meta.dirname, '../../docs/gateway.md'), 'utf8');
  const [, wanted] =
    /^\$ fairlead explain outside http:\/\/shop\.example\/cart\/7\n(.*?)^```$/ms.exec(document) ?? [];
  const filters = [
    { type: 'URLRewrite', urlRewrite: { path: { type: 'ReplacePrefixMatch', replacePrefixMatch: '/v2' } } },
    { type: 'RequestHeaderModifier', requestHeaderModifier: { set: [{ name: 'x-shop', value: '1' }] } },
  ];
  const backendRefs = [
    { name: 'cart', port: 80, weight: 3 },
    { name: 'canary', port: 80, weight: 1 },
  ];
  const shop = { matches: [prefix('/cart')], filters, backendRefs, timeouts: { request: '5s' } };
  const { ask } = cluster({
    'gatewayclasses v1': [gatewayClass()],
    'gateways v1': [gateway('gw', [listener('http', { hostname: 'shop.example' })])],
    'httproutes v1': [route('shop', [shop])],
    'namespaces v1': [object('default', {})],
    'services v1': [
      ...['cart', 'canary'].map((name) => service(name)),
      gatewayService('gateway/default/gw', '172.30.0.200', '10.96.0.10'),
    ],
  });
  const explanation = await ask('http://shop.example/cart/7');
  assert.equal(
    aroundPacket(explanation, renderShort(explanation, null), (lines) => lines),
    wanted,
  );
});

describe('other targets are explained as before', () => {
  const same = async (to: string, objects: Parameters<typeof cluster>[0], resolved = {}) => {
    const { ask, asked, listed } = cluster(objects, resolved);
    const explanation = await ask(to);
    assert.deepEqual(asked, [to]);
    assert.equal(Object.hasOwn(explanation, 'gateway'), false);
    return { explanation, listed };
  };
  test('nothing is listed for a target that is no URL', async () => {
    for (const to of ['svc/web:80', 'shop.example:80', '192.0.2.1:80/tcp', 'ftp://shop.example/'])
      assert.deepEqual((await same(to, OBJECTS)).listed, []);
  });
  test('names and addresses that no gateway has', async () => {
    for (const to of ['http://other.example/', 'http://shop.example:81/', 'http://192.0.2.99/'])
      assert.deepEqual((await same(to, OBJECTS)).explanation.steps, []);
  });
  test('a name that leads to a Service', async () => {
    await same('http://shop.example/', OBJECTS, { 'shop.example': '10.96.0.9' });
  });
  test('a cluster without a class of gateways: only classes are listed', async () => {
    const { listed } = await same('http://shop.example/', { 'ingressclasses v1': [] });
    assert.deepEqual(
      [...new Set(listed.map((one) => one.split(' ')[0]))],
      ['ingressclasses', 'gatewayclasses'],
    );
  });
  test('a user who may not list classes gets a step that says so', async () => {
    const { explanation } = await same('http://shop.example/', { 'ingressclasses v1': 'forbidden' });
    assert.match(explanation.steps[0]?.text ?? '', /not allowed to list ingressclasses/);
  });
  test('another failure of the API server is an error', async () => {
    const client = {
      list: async () => {
        throw new ApiError(500, {}, null, 'list');
      },
    } as unknown as Client;
    const explain = async () => ({ packet: null }) as unknown as Explanation;
    await assert.rejects(
      explainUrl({ from: 'outside', to: 'http://a/', family: null }, () => client, { explain }),
      /500/,
    );
  });
});
