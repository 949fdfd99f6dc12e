import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attach } from './attach.ts';
import { decide } from './decide.ts';
import type { GatewayRequest } from './decision.ts';
import type { GatewayObject, GatewayObjects } from './objects.ts';
import { indexRoutes } from './route-index.ts';
import {
  ingress,
  ingressClass,
  ingressPath,
  object,
  objects,
  outcome,
  request,
  service,
} from './testing/objects.ts';

const SERVICES = ['web', 'api', 'old', 'new', 'v2'].map((name) => service(name));

function world(ingresses: readonly GatewayObject[], more: Partial<GatewayObjects> = {}) {
  const attached = attach(
    objects({ ingressClasses: [ingressClass()], services: SERVICES, ingresses, ...more }),
  );
  const index = indexRoutes(attached.routeMap);
  return {
    ...attached,
    ask: (url: string, parts: Partial<GatewayRequest> = {}) => outcome(decide(index, request(url, parts))),
    decide: (url: string, parts: Partial<GatewayRequest> = {}) => decide(index, request(url, parts)),
  };
}

test('the table of path types of the Ingress API', () => {
  // Kind, path, request, matches: the examples of the Kubernetes documentation.
  const rows: readonly (readonly [string, string, string, boolean])[] = [
    ['Prefix', '/', '/any/path', true],
    ['Exact', '/foo', '/foo', true],
    ['Exact', '/foo', '/bar', false],
    ['Exact', '/foo', '/foo/', false],
    ['Exact', '/foo/', '/foo', false],
    ['Prefix', '/foo', '/foo', true],
    ['Prefix', '/foo', '/foo/', true],
    ['Prefix', '/foo/', '/foo', true],
    ['Prefix', '/foo/', '/foo/', true],
    ['Prefix', '/aaa/bb', '/aaa/bbb', false],
    ['Prefix', '/aaa/bbb', '/aaa/bbb', true],
    ['Prefix', '/aaa/bbb/', '/aaa/bbb', true],
    ['Prefix', '/aaa/bbb', '/aaa/bbb/', true],
    ['Prefix', '/aaa/bbb', '/aaa/bbb/ccc', true],
    ['Prefix', '/aaa/bbb', '/aaa/bbbxyz', false],
    ['ImplementationSpecific', '/aaa', '/aaa/x', true],
    ['ImplementationSpecific', '/aaa', '/aaab', false],
  ];
  for (const [type, path, asked, matches] of rows)
    assert.equal(
      world([ingress('a', [{ paths: [ingressPath(path, 'web', type)] }])]).ask(`http://a.example${asked}`),
      matches ? 'web' : '404',
      `${type} ${path} on ${asked}`,
    );
});

test('the longest prefix wins, and an exact path before it', () => {
  const { ask } = world([
    ingress('a', [
      {
        paths: [
          ingressPath('/', 'web'),
          ingressPath('/api', 'api'),
          ingressPath('/api/v2', 'v2'),
          ingressPath('/api/v2', 'new', 'Exact'),
        ],
      },
    ]),
  ]);
  assert.equal(ask('http://a/'), 'web');
  assert.equal(ask('http://a/api/v1'), 'api');
  assert.equal(ask('http://a/api/v2/x'), 'v2');
  assert.equal(ask('http://a/api/v2'), 'new');
});

test('a wildcard host stands for one label, and whole hosts go first', () => {
  const { ask } = world([
    ingress('a', [
      { host: '*.foo.com', paths: [ingressPath('/', 'web')] },
      { host: 'Bar.foo.com', paths: [ingressPath('/bar', 'api')] },
    ]),
  ]);
  assert.equal(ask('http://x.foo.com/'), 'web');
  assert.equal(ask('http://baz.bar.foo.com/'), '404');
  assert.equal(ask('http://foo.com/'), '404');
  assert.equal(ask('http://bar.foo.com:8080/bar'), 'api');
  // No path of the whole host matches: the rule of the wildcard does.
  assert.equal(ask('http://bar.foo.com/'), 'web');
});

test('of two Ingresses with the same host and path the older keeps it', () => {
  const { ask, findings } = world([
    ingress('a-new', [{ host: 'a.example', paths: [ingressPath('/x', 'new')] }], {
      age: 2,
      namespace: 'default',
    }),
    ingress('z-old', [{ host: 'a.example', paths: [ingressPath('/x', 'old'), ingressPath('/y', 'web')] }], {
      age: 1,
    }),
  ]);
  assert.equal(ask('http://a.example/x'), 'old');
  assert.equal(ask('http://a.example/y'), 'web');
  assert.deepEqual(
    findings.map(({ reason, object: { name } }) => [reason, name]),
    [['PathInUse', 'a-new']],
  );
});

test('default backends take what no rule does, first that of an Ingress with the host', () => {
  const backend = (name: string) => ({ defaultBackend: { service: { name, port: { name: 'http' } } } });
  const { ask } = world([
    ingress('all', [], { age: 1 }, backend('old')),
    ingress('own', [{ host: 'a.example', paths: [ingressPath('/x', 'web')] }], { age: 2 }, backend('new')),
  ]);
  assert.equal(ask('http://a.example/x'), 'web');
  assert.equal(ask('http://a.example/y'), 'new');
  assert.equal(ask('http://b.example/'), 'old');
});

test('classes: the field, the annotation, the default, and those of other controllers', () => {
  const paths = [ingressPath('/', 'web')];
  const classless = object('a', { rules: [{ http: { paths } }] });
  const legacy = object(
    'a',
    { rules: [{ http: { paths } }] },
    { annotations: { 'kubernetes.io/ingress.class': 'fairlead' } },
  );
  const other = ingress('a', [{ paths }], {}, { ingressClassName: 'nginx' });
  const isDefault = { 'ingressclass.kubernetes.io/is-default-class': 'true' };
  assert.equal(world([classless]).ask('http://a/'), 'close');
  assert.equal(
    world([classless], { ingressClasses: [ingressClass('fairlead', isDefault)] }).ask('http://a/'),
    'web',
  );
  assert.equal(world([legacy]).ask('http://a/'), 'web');
  assert.equal(world([other]).ask('http://a/'), 'close');
  const newer = object('nginx', { controller: 'k8s.io/ingress-nginx' }, { annotations: isDefault, age: 5 });
  assert.equal(
    world([classless], { ingressClasses: [ingressClass('fairlead', isDefault), newer] }).ask('http://a/'),
    'close',
  );
});

test('backends that cannot be used are answered with 503 and named', () => {
  const path = (backend: unknown) => [{ path: '/', pathType: 'Prefix', backend }];
  const services = [
    ...SERVICES,
    object('ext', { type: 'ExternalName', ports: [{ port: 80 }] }),
    service('theirs', { namespace: 'other' }),
  ];
  for (const [backend, reason] of [
    [{ service: { name: 'none', port: { number: 80 } } }, /does not exist/],
    [{ service: { name: 'theirs', port: { number: 80 } } }, /does not exist in namespace default/],
    [{ service: { name: '../other/theirs', port: { number: 80 } } }, /does not exist/],
    [{ service: { name: 'web', port: { number: 81 } } }, /has no port 81/],
    [{ service: { name: 'web', port: { name: 'none' } } }, /has no port "none"/],
    [{ service: { name: 'ext', port: { number: 80 } } }, /ExternalName/],
    [{ resource: { kind: 'Bucket', name: 'b' } }, /resource backends/],
    [7, /does not exist/],
  ] as const) {
    const { ask, findings } = world([ingress('a', [{ paths: path(backend) }])], { services });
    assert.equal(ask('http://a/'), '503');
    assert.match(findings[0]?.message ?? '', reason);
  }
});

const CERTIFICATES = new Map<string, string | null>([
  ['default/a-tls', null],
  ['default/all-tls', null],
  ['default/broken', 'has no tls.key'],
  ['other/a-tls', null],
]);

test('certificates are chosen by the hosts of spec.tls; the connection and the host have to agree', () => {
  const { ask, routeMap, findings } = world(
    [
      ingress(
        'a',
        [{ host: 'a.example', paths: [ingressPath('/', 'web')] }],
        { age: 1 },
        { tls: [{ hosts: ['a.example'], secretName: 'a-tls' }] },
      ),
      ingress(
        'b',
        [{ host: 'b.example', paths: [ingressPath('/', 'api')] }],
        { age: 2 },
        { tls: [{ secretName: 'all-tls' }] },
      ),
      ingress(
        'c',
        [{ host: 'c.example', paths: [ingressPath('/', 'api')] }],
        { age: 3 },
        {
          tls: [
            { hosts: ['c.example'], secretName: 'broken' },
            { hosts: ['c.example'], secretName: 'none' },
            { hosts: ['c.example'] },
          ],
        },
      ),
      // Another namespace cannot take the certificate of a host that an older Ingress has.
      ingress(
        'thief',
        [],
        { age: 4, namespace: 'other' },
        { tls: [{ hosts: ['a.example'], secretName: 'a-tls' }] },
      ),
    ],
    { certificates: CERTIFICATES },
  );
  assert.equal(ask('https://a.example/'), 'web');
  assert.equal(ask('https://b.example/'), 'api');
  assert.equal(ask('https://a.example/', { host: 'b.example' }), '421');
  assert.equal(ask('https://b.example/', { host: 'a.example' }), '421');
  const tls = routeMap.gateways[0]?.ports.find(({ kind }) => kind === 'tls');
  assert.deepEqual(
    tls?.kind === 'tls'
      ? tls.listeners.map((listener) => ['tls' in listener && listener.tls.certificates, listener.hostname])
      : [],
    [
      [['default/a-tls'], 'a.example'],
      [['default/all-tls'], ''],
    ],
  );
  assert.deepEqual(
    findings.map(({ reason, object: { namespace, name } }) => `${reason} ${namespace}/${name}`),
    [
      'NoCertificate default/c',
      'NoCertificate default/c',
      'NoCertificate default/c',
      'HostInUse other/thief',
    ],
  );
});

const nginx = (annotations: Readonly<Record<string, string>>) =>
  Object.fromEntries(
    Object.entries(annotations).map(([key, value]) => [`nginx.ingress.kubernetes.io/${key}`, value]),
  );

test('annotations of ingress-nginx that are applied', () => {
  const single = (annotations: Readonly<Record<string, string>>, path = ingressPath('/', 'web'), more = {}) =>
    world([ingress('a', [{ host: 'a.example', paths: [path] }], { annotations: nginx(annotations) }, more)], {
      certificates: CERTIFICATES,
    });
  const forward = (
    annotations: Readonly<Record<string, string>>,
    url = 'http://a.example/',
    path = ingressPath('/', 'web'),
  ) => {
    const decision = single(annotations, path).decide(url);
    assert.equal(decision.kind, 'forward', JSON.stringify(decision));
    return decision.kind === 'forward' ? decision : assert.fail();
  };
  const regex = ingressPath('/shop(/|$)(.*)', 'web', 'ImplementationSpecific');
  assert.equal(
    forward({ 'rewrite-target': '/$2' }, 'http://a.example/shop/cart?x=1', regex).target,
    '/cart?x=1',
  );
  assert.equal(forward({ 'rewrite-target': '/$2' }, 'http://a.example/SHOP', regex).target, '/');
  assert.equal(
    forward({ 'rewrite-target': '/new' }, 'http://a.example/old/x', ingressPath('/old', 'web')).target,
    '/new',
  );
  assert.equal(
    forward({ 'use-regex': 'true' }, 'http://a.example/v12/x', ingressPath('/v[0-9]+', 'web')).target,
    '/v12/x',
  );
  const tls = { tls: [{ hosts: ['a.example'], secretName: 'a-tls' }] };
  const redirected = single({ 'ssl-redirect': 'true' }, ingressPath('/', 'web'), tls);
  assert.equal(redirected.ask('http://a.example:80/x?y'), '308 https://a.example/x?y');
  assert.equal(redirected.ask('https://a.example/x'), 'web');
  assert.equal(single({ 'ssl-redirect': 'true' }).ask('http://a.example/'), 'web');
  assert.equal(single({ 'force-ssl-redirect': 'true' }).ask('http://a.example/'), '308 https://a.example/');
  assert.equal(single({ 'app-root': '/app' }).ask('http://a.example/'), '302 http://a.example/app');
  assert.equal(single({ 'app-root': '/app' }).ask('http://a.example/x'), 'web');
  assert.equal(forward({ 'proxy-body-size': '8m' }).bodyLimit, 8 * 2 ** 20);
  assert.equal(forward({ 'proxy-body-size': '0' }).bodyLimit, null);
  assert.deepEqual(forward({ 'proxy-read-timeout': '30', 'proxy-connect-timeout': '5' }).timeouts, {
    request: null,
    backend: 30_000,
    connect: 5000,
  });
  assert.equal(single({ 'whitelist-source-range': '10.0.0.0/8' }).ask('http://a.example/'), '403');
  assert.equal(single({ 'whitelist-source-range': '10.0.0.0/8,192.0.2.1' }).ask('http://a.example/'), 'web');
  assert.equal(
    single({ 'whitelist-source-range': '10.0.0.0/8' }).ask('http://a.example/', { source: null }),
    '403',
  );
  assert.equal(
    single({ 'proxy-body-size': '1k' }).ask('http://a.example/', {
      headers: [{ name: 'Content-Length', value: '1025' }],
    }),
    '413',
  );
  for (const [value, key] of [
    ['HTTPS', 'default/web:80+tls-unverified'],
    ['GRPC', 'default/web:80+h2c'],
    ['GRPCS', 'default/web:80+h2c+tls-unverified'],
  ] as const)
    assert.equal(single({ 'backend-protocol': value }).routeMap.backends[0]?.key, key);
});

test('an annotation that restricts and cannot be read refuses everything', () => {
  const { ask, findings } = world([
    ingress('a', [{ paths: [ingressPath('/', 'web')] }], {
      annotations: nginx({ 'whitelist-source-range': '10.0.0.0/8,everyone' }),
    }),
  ]);
  assert.equal(ask('http://a/'), '503');
  assert.match(findings[0]?.message ?? '', /"everyone" is not an address/);
});

test('a BackendTLSPolicy counts for Ingresses too, and one that is not valid is never passed by', () => {
  const policy = (ca: string) =>
    object('p', {
      targetRefs: [{ group: '', kind: 'Service', name: 'web' }],
      validation: {
        hostname: 'web.example',
        caCertificateRefs: [{ group: '', kind: 'ConfigMap', name: ca }],
      },
    });
  const cluster = (ca: string) =>
    world(
      [
        ingress('a', [{ paths: [ingressPath('/', 'web')] }], {
          annotations: nginx({ 'backend-protocol': 'HTTPS' }),
        }),
      ],
      {
        backendTlsPolicies: [policy(ca)],
        authorities: new Map([['default/ConfigMap/ca', null]]),
      },
    );
  assert.deepEqual(cluster('ca').routeMap.backends[0]?.tls, {
    hostname: 'web.example',
    names: [],
    authorities: ['default/ConfigMap/ca'],
    verify: true,
    certificate: null,
  });
  assert.equal(cluster('none').ask('http://h/'), '503');
});

test('CORS: preflights are answered here, and no origin gets credentials by "*"', () => {
  const origin = { name: 'Origin', value: 'https://page.example' };
  const preflight = {
    method: 'OPTIONS',
    headers: [origin, { name: 'Access-Control-Request-Method', value: 'PUT' }],
  };
  const { decide: ask } = world([
    ingress('a', [{ paths: [ingressPath('/', 'web')] }], { annotations: nginx({ 'enable-cors': 'true' }) }),
  ]);
  const decision = ask('http://a/', preflight);
  assert.equal(decision.kind, 'preflight');
  const headers =
    decision.kind === 'preflight'
      ? Object.fromEntries(decision.headers.map(({ name, value }) => [name, value]))
      : {};
  assert.equal(headers['access-control-allow-origin'], '*');
  assert.equal(headers['access-control-allow-credentials'], undefined);
  const answer = ask('http://a/', { headers: [origin] });
  assert.deepEqual(answer.kind === 'forward' && answer.cors, [
    { name: 'access-control-allow-origin', value: '*' },
  ]);
});

test('a canary takes its share, and all requests with its header', () => {
  const paths = [ingressPath('/', 'web')];
  const canary = (annotations: Readonly<Record<string, string>>, meta = {}) =>
    ingress('canary', [{ host: 'a.example', paths: [ingressPath('/', 'v2')] }], {
      age: 5,
      annotations: nginx({ canary: 'true', ...annotations }),
      ...meta,
    });
  const main = ingress('main', [{ host: 'a.example', paths }]);
  const weighted = world([main, canary({ 'canary-weight': '30' })]);
  assert.equal(weighted.ask('http://a.example/'), 'web 70, v2 30');
  const header = world([main, canary({ 'canary-weight': '30', 'canary-by-header': 'X-Canary' })]);
  assert.equal(header.ask('http://a.example/', { headers: [{ name: 'x-canary', value: 'always' }] }), 'v2');
  assert.equal(header.ask('http://a.example/', { headers: [{ name: 'x-canary', value: 'never' }] }), 'web');
  assert.equal(
    header.ask('http://a.example/', { headers: [{ name: 'x-canary', value: 'other' }] }),
    'web 70, v2 30',
  );
  const value = world([
    main,
    canary({ 'canary-by-header': 'X-Canary', 'canary-by-header-pattern': 'de|at' }),
  ]);
  assert.equal(value.ask('http://a.example/', { headers: [{ name: 'X-Canary', value: 'at' }] }), 'v2');
  assert.equal(value.ask('http://a.example/', { headers: [{ name: 'X-Canary', value: 'ate' }] }), 'web');
  // A canary of another namespace would take requests of this one.
  const foreign = world([main, canary({ 'canary-weight': '100' }, { namespace: 'other' })], {
    services: [...SERVICES, service('v2', { namespace: 'other' })],
  });
  assert.equal(foreign.ask('http://a.example/'), 'web');
  assert.equal(foreign.findings[0]?.reason, 'CanaryWithoutMain');
});

test('objects of any shape neither throw nor reach the map as anything but rows', () => {
  const junk: readonly unknown[] = [null, 7, 'text', [], {}, [null], { toString: 1 }, true, '__proto__'];
  for (const a of junk)
    for (const b of junk) {
      const spec = {
        ingressClassName: 'fairlead',
        rules: [{ host: a, http: { paths: [{ path: b, pathType: a, backend: b }, a] } }, b],
        tls: [{ hosts: [a], secretName: b }, a],
        defaultBackend: a,
      };
      attach(
        objects({
          ingressClasses: [ingressClass()],
          services: [object('web', a), object('x', { ports: [a] })],
          ingresses: [object('a', spec), object('b', a), { metadata: a as never, spec: b }],
        }),
      );
    }
});
