import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ExplainedRequest, explainRequest, nextCommand } from '../gateway/explain-request.ts';
import { serviceNameOf } from '../gateway/gateway-service.ts';
import type { GatewayObject, GatewayObjects } from '../gateway/objects.ts';
import {
  gatewayAt,
  gatewaysNamed,
  type RequestGateways,
  readRequestGateways,
} from '../gateway/request-gateways.ts';
import { readRequestUrl } from '../gateway/request-url.ts';
import {
  gateway,
  gatewayClass,
  ingress,
  ingressClass,
  ingressPath,
  listener,
  namespaceObject,
  object,
  objects,
  prefix,
  route,
  rule,
  service,
  tlsListener,
} from '../gateway/testing/objects.ts';
import { aroundPacket, renderRequest } from './explain-request-text.ts';

/** The Service of a gateway. */
function place(key: string, outer: string, inner: string): GatewayObject {
  const annotations = { 'fairlead.dev/gateway': key };
  return {
    ...object(serviceNameOf(key), { clusterIPs: [inner] }, { namespace: 'fairlead-gateways', annotations }),
    status: { loadBalancer: { ingress: [{ ip: outer }] } },
  };
}

function cluster(parts: Partial<GatewayObjects>): RequestGateways {
  return readRequestGateways(
    objects({
      ingressClasses: [ingressClass()],
      gatewayClasses: [gatewayClass()],
      namespaces: [namespaceObject('default')],
      certificates: new Map([['default/tls', null]]),
      ...parts,
      services: [
        ...['web', 'cart', 'canary'].map((name) => service(name)),
        place('ingress/fairlead', '192.0.2.1', '10.96.0.1'),
        place('gateway/default/gw', '192.0.2.10', '10.96.0.10'),
      ],
    }),
  );
}

/** Explains a URL at the gateway that has it; null: none has. */
function ask(gateways: RequestGateways, text: string, source: string | null = null): ExplainedRequest | null {
  const url = readRequestUrl(text);
  assert.ok(url);
  const [named, ...others] = gatewaysNamed(gateways, url);
  const key = url.address === null ? named : gatewayAt(gateways, url.address);
  if (!key) return null;
  const address = url.address ?? gateways.places.find((one) => one.key === key)?.outer[0] ?? null;
  return explainRequest(gateways, url, { gateway: key, others, address, source });
}

/** The lines after the first one, without their indentation. */
const lines = (explained: ExplainedRequest | null): readonly string[] =>
  explained === null
    ? []
    : renderRequest(explained)
        .trimEnd()
        .split('\n')
        .slice(1)
        .map((line) => line.trim().replace(/ +/g, ' '));

describe('URLs', () => {
  const rows: readonly (readonly [url: string, read: string | null])[] = [
    ['http://Shop.Example', 'shop.example 80 Shop.Example - /'],
    ['https://shop.example/a?b#c', 'shop.example 443 shop.example shop.example /a?b'],
    ['https://shop.example.:443/', 'shop.example 443 shop.example. shop.example /'],
    ['http://user:word@shop.example:81?q', 'shop.example 81 shop.example:81 - /?q'],
    ['https://[FD00::1]:8443/x', 'fd00::1 8443 [FD00::1]:8443  /x'],
    ['http://', null],
    ['http://a:0/', null],
    ['http://a:99999/', null],
    ['svc/web', null],
    ['ftp://a/', null],
  ];
  for (const [text, wanted] of rows)
    test(text, () => {
      const url = readRequestUrl(text);
      assert.equal(
        url && [url.name, url.port, url.host, url.serverName ?? '-', url.target].join(' '),
        wanted,
      );
    });
});

describe('Ingresses', () => {
  const gateways = cluster({
    ingresses: [
      ingress('shop', [
        { host: 'shop.example', paths: [ingressPath('/', 'web'), ingressPath('/cart', 'cart')] },
        { host: 'broken.example', paths: [ingressPath('/', 'none')] },
      ]),
      ingress(
        'secure',
        [{ host: 'secure.example', paths: [ingressPath('/', 'web')] }],
        {
          annotations: { 'nginx.ingress.kubernetes.io/ssl-redirect': 'true' },
        },
        { tls: [{ hosts: ['secure.example'], secretName: 'tls' }] },
      ),
      ingress('late', [{ host: 'shop.example', paths: [ingressPath('/cart', 'web')] }], { age: 5 }),
      ingress('office', [{ host: 'office.example', paths: [ingressPath('/', 'web')] }], {
        annotations: { 'nginx.ingress.kubernetes.io/whitelist-source-range': '10.0.0.0/8' },
      }),
    ],
  });
  const rows: readonly (readonly [url: string, lines: readonly string[]])[] = [
    [
      'http://shop.example/x',
      [
        'listener http',
        'route Ingress default/shop, rule 0',
        'match host shop.example, path prefix /',
        'backend Service default/web:80, 100 %',
      ],
    ],
    [
      'http://broken.example/',
      [
        'listener http',
        'route Ingress default/shop, rule 1',
        'match host broken.example, path prefix /',
        'answer 503 by the gateway: Service "none" does not exist in namespace default',
      ],
    ],
    [
      'http://secure.example/a?b',
      [
        'listener http',
        'route Ingress default/secure, rule 0',
        'match host secure.example, path prefix /',
        'answer 308 to https://secure.example/a?b',
      ],
    ],
    [
      'https://secure.example/',
      [
        'listener https-secure.example',
        'route Ingress default/secure, rule 0',
        'match host secure.example, path prefix /',
        'backend Service default/web:80, 100 %',
      ],
    ],
    ['http://192.0.2.1/', ['listener http', 'answer 404 by the gateway: no route has this host']],
    ['http://10.96.0.1/', ['listener http', 'answer 404 by the gateway: no route has this host']],
    ['http://192.0.2.1/a/../b', ['answer 400 by the gateway: the path has a "." or ".." segment']],
    ['http://192.0.2.1:81/', ['answer none, the connection is closed: no listener has port 81']],
    ['https://192.0.2.1/', ['answer none, the connection is closed: no listener has the server name (none)']],
    ['http://other.example/', []],
    ['http://shop.example:81/', []],
    [
      'https://shop.example/',
      ['answer none, the connection is closed: no listener has the server name shop.example'],
    ],
  ];
  for (const [url, wanted] of rows)
    test(url, () => {
      const said = lines(ask(gateways, url)).filter((line) => !line.startsWith('refused '));
      assert.deepEqual(said, wanted);
    });
  test('a path that an older Ingress has is said with its field', () => {
    const explained = ask(gateways, 'http://shop.example/cart/1');
    assert.equal(explained?.route?.name, 'shop');
    assert.equal(explained?.backends[0]?.service, 'default/cart');
    assert.deepEqual(
      explained?.unaccepted.map(({ object: one, condition, reason, field }) => [
        one,
        condition,
        reason,
        field,
      ]),
      [['Ingress default/late', null, 'PathInUse', 'spec.rules[0].http.paths[0]']],
    );
  });
  test('the client counts', () => {
    assert.equal(ask(gateways, 'http://office.example/', '192.0.2.9')?.status, 403);
    assert.equal(ask(gateways, 'http://office.example/', '10.1.2.3')?.result, 'forwarded');
  });
});

describe('the Gateway API', () => {
  const changes = {
    filters: [
      {
        type: 'RequestHeaderModifier',
        requestHeaderModifier: { set: [{ name: 'X-Shop', value: 'a b' }], remove: ['Cookie'] },
      },
      { type: 'ResponseHeaderModifier', responseHeaderModifier: { add: [{ name: 'X-By', value: 'gw' }] } },
      {
        type: 'URLRewrite',
        urlRewrite: {
          hostname: 'in.example',
          path: { type: 'ReplacePrefixMatch', replacePrefixMatch: '/v2' },
        },
      },
      { type: 'RequestMirror', requestMirror: { backendRef: { name: 'canary', port: 80 }, percent: 10 } },
      { type: 'CORS', cors: { allowOrigins: ['https://a.example'] } },
    ],
    timeouts: { request: '5s', backendRequest: '1500ms' },
    retry: { attempts: 3, codes: [503] },
  };
  const redirect = {
    type: 'RequestRedirect',
    requestRedirect: { scheme: 'https', hostname: 'new.example', statusCode: 301 },
  };
  const gateways = cluster({
    gateways: [
      gateway('gw', [
        listener('http', { hostname: '*.example' }),
        tlsListener('named', 'shop.example'),
        tlsListener('any', undefined),
        tlsListener('lacks', 'lacks.test', { tls: { certificateRefs: [{ name: 'none' }] } }),
      ]),
      gateway('narrow', [listener('http', { hostname: 'shop.example' })]),
    ],
    httpRoutes: [
      route(
        'shop',
        [
          {
            matches: [prefix('/cart')],
            ...changes,
            backendRefs: [
              { name: 'cart', port: 80, weight: 3 },
              { name: 'canary', port: 80, weight: 1 },
            ],
          },
          { matches: [prefix('/old')], filters: [redirect] },
          {
            matches: [prefix('/part')],
            backendRefs: [
              { name: 'web', port: 80, weight: 2 },
              { name: 'gone', port: 80, weight: 1 },
            ],
          },
          rule('gone', prefix('/gone')),
          rule('web', prefix('/beta', { headers: [{ name: 'X-Beta', value: 'on' }] })),
        ],
        {},
        { hostnames: ['*.example'] },
      ),
      route(
        'far',
        [rule('web')],
        {},
        {
          hostnames: ['far.test'],
          parentRefs: [{ name: 'gw', sectionName: 'http' }],
        },
      ),
    ],
  });
  const gw = (url: string) => {
    const read = readRequestUrl(url);
    assert.ok(read);
    return explainRequest(gateways, read, {
      gateway: 'gateway/default/gw',
      others: [],
      address: '192.0.2.10',
      source: null,
    });
  };
  const refusedGone =
    'refused HTTPRoute default/shop at spec.rules[2].backendRefs[1]: Service "default/gone" does not exist (ResolvedRefs=False BackendNotFound)';
  const ROUTE = ['listener http', 'route HTTPRoute default/shop, rule'];
  const rows: readonly (readonly [url: string, lines: readonly string[]])[] = [
    [
      'http://a.example/cart/1?x=2',
      [
        ROUTE[0] ?? '',
        `${ROUTE[1]} 0`,
        'match host *.example, path prefix /cart',
        'rewrite host in.example, path /v2/1?x=2',
        'request remove cookie, set x-shop: "a b"',
        'response add x-by: "gw"',
        'CORS origins https://a.example',
        'mirror default/canary:80, 10 %',
        'backend Service default/cart:80, 75 %',
        'backend Service default/canary:80, 25 %',
        'timeouts request 5 s, backend 1500 ms',
        'retry 3 times after 25 ms, also on 503',
      ],
    ],
    [
      'http://a.example/old/x',
      [
        ROUTE[0] ?? '',
        `${ROUTE[1]} 1`,
        'match host *.example, path prefix /old',
        'answer 301 to https://new.example/old/x',
      ],
    ],
    [
      'http://a.example/part',
      [
        ROUTE[0] ?? '',
        `${ROUTE[1]} 2`,
        'match host *.example, path prefix /part',
        'backend Service default/web:80, 66.7 %',
        'backend none, 33.3 %: Service "default/gone" does not exist',
        refusedGone,
      ],
    ],
    [
      'http://a.example/gone',
      [
        ROUTE[0] ?? '',
        `${ROUTE[1]} 3`,
        'match host *.example, path prefix /gone',
        'answer 500 by the gateway: default/shop: Service "default/gone" does not exist',
      ],
    ],
    ['http://a.example/none', ['listener http', 'answer 404 by the gateway: no route matches']],
    ['http://a.example/beta', ['listener http', 'answer 404 by the gateway: no route matches']],
    ['http://192.0.2.10/cart', ['answer 404 by the gateway: no listener has this host']],
    [
      'https://shop.example./cart',
      ['listener named', 'answer 421 by the gateway: the connection is for listener named, the host for any'],
    ],
  ];
  for (const [url, wanted] of rows) test(url, () => assert.deepEqual(lines(gw(url)), wanted));

  test('the most specific name comes first, and the other gateway is said', () => {
    const explained = ask(gateways, 'http://shop.example/');
    assert.equal(explained?.gateway, 'gateway/default/narrow');
    assert.equal(explained?.address, null);
    assert.deepEqual(explained?.others, ['gateway/default/gw']);
  });
  test('a route that no listener takes, and a listener without its certificate', () => {
    assert.deepEqual(ask(gateways, 'http://far.test/')?.unaccepted, [
      {
        object: 'HTTPRoute default/far',
        condition: 'Accepted=False',
        reason: 'NoMatchingListenerHostname',
        field: 'spec.hostnames',
        message: 'no listener has a hostname that intersects with those of the route',
      },
    ]);
    const lacks = ask(gateways, 'https://lacks.test/');
    assert.equal(lacks?.gateway, 'gateway/default/gw');
    assert.deepEqual(
      lacks?.unaccepted.map(({ object: one, condition, field }) => [one, condition, field]),
      [['Gateway default/gw', 'ResolvedRefs=False', 'spec.listeners[3]']],
    );
  });
  test('why objects for the name are not accepted', () => {
    const parametersRef = { group: 'a.example', kind: 'X', name: 'x' };
    const refused = cluster({
      gateways: [
        gateway('gw', [
          listener('http', { hostname: '*.test', allowedRoutes: { namespaces: { from: 'Same' } } }),
          { name: 'odd', port: 80, protocol: 'example.com/odd', hostname: 'odd.example' },
        ]),
        gateway(
          'whole',
          [listener('http', { hostname: 'whole.example' })],
          {},
          { infrastructure: { parametersRef } },
        ),
      ],
      httpRoutes: [
        route('far', [rule('web')], { namespace: 'other' }, { hostnames: ['far.test'] }),
        route(
          'filter',
          [rule('web', null, { filters: [{ type: 'ExtensionRef' }] })],
          {},
          { hostnames: ['filter.test'] },
        ),
        route('name', [rule('web')], {}, { hostnames: ['under_score.test'] }),
      ],
    });
    const said = (url: string) =>
      ask(refused, url)?.unaccepted.map(({ object: one, condition, reason, field }) =>
        [one, condition, reason, field].join(' '),
      );
    // A route whose hostname cannot be read may have been meant; it comes after those with the name.
    const unread = 'HTTPRoute default/name Accepted=False UnsupportedValue spec.hostnames[0]';
    const wanted: Readonly<Record<string, readonly string[]>> = {
      'far.test': [
        'HTTPRoute other/far Accepted=False NotAllowedByListeners spec.parentRefs',
        'HTTPRoute other/far ResolvedRefs=False BackendNotFound spec.rules[0].backendRefs[0]',
        unread,
      ],
      'filter.test': [
        'HTTPRoute default/filter Accepted=False UnsupportedValue spec.rules[0].filters[0].type',
        unread,
      ],
      'odd.example': ['Gateway default/gw Accepted=False UnsupportedProtocol spec.listeners[1]', unread],
      'whole.example': [
        'Gateway default/whole Accepted=False InvalidParameters spec.infrastructure.parametersRef',
      ],
    };
    const found = Object.fromEntries(
      ['far.test', 'filter.test', 'odd.example', 'whole.example'].map((name) => [
        name,
        said(`http://${name}/`),
      ]),
    );
    assert.deepEqual(found, wanted);
  });
  test('a connection that is passed on by its server name', () => {
    const passing = cluster({
      gateways: [
        gateway('gw', [
          { name: 'tls', port: 443, protocol: 'TLS', hostname: '*.test', tls: { mode: 'Passthrough' } },
        ]),
      ],
      tlsRoutes: [
        route('pass', [{ backendRefs: [{ name: 'web', port: 80 }] }], {}, { hostnames: ['a.test'] }),
      ],
    });
    assert.deepEqual(lines(ask(passing, 'https://a.test/')), [
      'listener tls',
      'route TLSRoute default/pass, rule 0',
      'answer of the backend: the bytes are passed on by the server name',
      'backend Service default/web:80, 100 %',
    ]);
    assert.equal(ask(passing, 'https://b.test/')?.reason, 'no route has this server name');
  });
  test('the second connection is to the backend with the largest share', () => {
    const explained = gw('http://a.example/cart');
    const next = nextCommand(explained, 'node-1');
    assert.equal(next, 'fairlead explain node/node-1 svc/default/cart:80');
    const text = aroundPacket({ gateway: { ...explained, next } }, 'DELIVERED\n', (lines) => lines);
    assert.ok(text.endsWith(`\n\nDELIVERED\nthen, from the proxy to the backend: ${next}\n`), text);
    assert.equal(
      aroundPacket({}, 'DELIVERED\n', (lines) => lines),
      'DELIVERED\n',
    );
    assert.equal(nextCommand(gw('http://a.example/gone'), 'node-1'), null);
  });
});
