import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  exact,
  gateway,
  listener,
  object,
  prefix,
  route,
  rule,
  service,
  tlsListener,
} from './testing/objects.ts';
import { world } from './testing/world.ts';

const header = (name: string, value: string) => ({ headers: [{ name, value }] });

test("the API's example of precedence between matches", () => {
  // HTTPRouteRule.matches: exact, the longest prefix, method, number of headers, number of query parameters.
  const { ask } = world({
    httpRoutes: [
      route('r', [
        rule('a', prefix('/')),
        rule('b', prefix('/match')),
        rule('c', prefix('/match', header('version', 'one'))),
        rule('d', exact('/match/exact')),
        rule('a', prefix('/match', { method: 'POST' })),
        rule('d', prefix('/match', { queryParams: [{ name: 'q', value: '1' }] })),
      ]),
    ],
  });
  assert.equal(ask('http://h/'), 'a');
  assert.equal(ask('http://h/match/x'), 'b');
  assert.equal(ask('http://h/match/x', header('Version', 'one')), 'c');
  assert.equal(ask('http://h/match/exact', header('version', 'one')), 'd');
  assert.equal(ask('http://h/match', { method: 'POST', ...header('version', 'one') }), 'a');
  assert.equal(ask('http://h/match?q=1', header('version', 'one')), 'c');
  assert.equal(ask('http://h/match?x&q=1'), 'd');
  assert.equal(ask('http://h/match?q=2&q=1'), 'b');
});

test('ties: the older route, then its namespace and name, then the first rule', () => {
  const same = prefix('/x');
  assert.equal(
    world({
      httpRoutes: [route('z', [rule('a', same)], { age: 1 }), route('b', [rule('b', same)], { age: 2 })],
    }).ask('http://h/x'),
    'a',
  );
  assert.equal(
    world({ httpRoutes: [route('z', [rule('a', same)]), route('b', [rule('b', same)])] }).ask('http://h/x'),
    'b',
  );
  assert.equal(
    world({ httpRoutes: [route('z', [rule('a', same), rule('b', same)])] }).ask('http://h/x'),
    'a',
  );
});

test('hosts: whole names, then the longest wildcard, then all; others follow where no rule matches', () => {
  const hosted = (name: string, hostname: string | null, path: string) =>
    route(`r-${name}`, [rule(name, prefix(path))], {}, hostname === null ? {} : { hostnames: [hostname] });
  const { ask } = world({
    httpRoutes: [
      hosted('a', 'x.foo.example', '/a'),
      hosted('b', '*.foo.example', '/'),
      hosted('c', '*.example', '/'),
      hosted('d', null, '/'),
    ],
  });
  assert.equal(ask('http://x.foo.example/a'), 'a');
  assert.equal(ask('http://x.foo.example/other'), 'b');
  assert.equal(ask('http://y.x.foo.example/a'), 'b');
  assert.equal(ask('http://foo.example/a'), 'c');
  assert.equal(ask('http://example/a'), 'd');
  assert.equal(ask('http://X.FOO.example:80/a'), 'a');
});

test('a request belongs to the most specific listener, and to no other', () => {
  const at = (section: string) => ({ parentRefs: [{ name: 'gw', sectionName: section }] });
  const { ask } = world({
    gateways: [
      gateway('gw', [
        listener('all'),
        listener('wild', { hostname: '*.example' }),
        listener('one', { hostname: 'a.example' }),
      ]),
    ],
    httpRoutes: [
      route('all', [rule('a')], {}, at('all')),
      route('wild', [rule('b')], {}, at('wild')),
      route('one', [rule('c', prefix('/c'))], {}, at('one')),
    ],
  });
  assert.equal(ask('http://a.example/c'), 'c');
  assert.equal(ask('http://a.example/x'), '404');
  assert.equal(ask('http://b.example/'), 'b');
  assert.equal(ask('http://b.test/'), 'a');
});

test('with TLS, the server name chooses the listener, and a host of another is misdirected', () => {
  const { ask } = world({
    gateways: [
      gateway('gw', [
        tlsListener('wild', '*.example'),
        tlsListener('one', 'a.example'),
        tlsListener('second', 'a.test'),
      ]),
    ],
    httpRoutes: [route('r', [rule('a')])],
  });
  assert.equal(ask('https://a.example/'), 'a');
  assert.equal(ask('https://a.example/', { host: 'b.example' }), '421');
  assert.equal(ask('https://b.example/', { host: 'a.example' }), '421');
  assert.equal(ask('https://b.example/', { host: 'c.example' }), 'a');
  assert.equal(ask('https://b.example/', { host: 'nothing.org' }), '404');
  assert.equal(ask('https://nothing.org/'), 'close');
  assert.equal(ask('https://a.example/', { serverName: '' }), 'close');
  assert.equal(ask('https://a.example/', { serverName: null }), 'close');
});

test('the table of replaced prefixes of HTTPPathModifier', () => {
  for (const [path, from, to, expected] of [
    ['/foo/bar', '/foo', '/xyz', '/xyz/bar'],
    ['/foo/bar', '/foo', '/xyz/', '/xyz/bar'],
    ['/foo/bar', '/foo/', '/xyz', '/xyz/bar'],
    ['/foo/bar', '/foo/', '/xyz/', '/xyz/bar'],
    ['/foo', '/foo', '/xyz', '/xyz'],
    ['/foo/', '/foo', '/xyz', '/xyz/'],
    ['/foo/bar', '/foo', '', '/bar'],
    ['/foo/', '/foo', '', '/'],
    ['/foo', '/foo', '', '/'],
    ['/foo/', '/foo', '/', '/'],
    ['/foo', '/foo', '/', '/'],
    ['/bar', '/', '/xyz', '/xyz/bar'],
  ] as const) {
    const rewrite = {
      type: 'URLRewrite',
      urlRewrite: { path: { type: 'ReplacePrefixMatch', replacePrefixMatch: to } },
    };
    const decision = world({
      httpRoutes: [route('r', [rule('a', prefix(from), { filters: [rewrite] })])],
    }).decide(`http://h${path}?q`);
    assert.equal(decision.kind === 'forward' && decision.target, `${expected}?q`, `${path}: ${from} → ${to}`);
  }
});

test('redirects: scheme, host, port and path', () => {
  const redirect = (requestRedirect: unknown, at = 'http://h.example:8080/p?q', port = 80) =>
    world({
      gateways: [gateway('gw', [listener('http', { port })])],
      httpRoutes: [
        route('r', [{ matches: [prefix('/p')], filters: [{ type: 'RequestRedirect', requestRedirect }] }]),
      ],
    }).ask(at, { port });
  assert.equal(redirect({ hostname: 'other.example' }), '302 http://other.example/p?q');
  assert.equal(redirect({ scheme: 'https', statusCode: 301 }), '301 https://h.example/p?q');
  assert.equal(redirect({ hostname: 'o' }, undefined, 8080), '302 http://o:8080/p?q');
  assert.equal(redirect({ scheme: 'https' }, undefined, 8080), '302 https://h.example/p?q');
  assert.equal(redirect({ port: 8443, scheme: 'https', statusCode: 308 }), '308 https://h.example:8443/p?q');
  assert.equal(
    redirect({ path: { type: 'ReplaceFullPath', replaceFullPath: '/new' } }),
    '302 http://h.example/new?q',
  );
  assert.equal(
    redirect(
      { path: { type: 'ReplacePrefixMatch', replacePrefixMatch: '/new' }, statusCode: 307 },
      'http://h/p/x',
    ),
    '307 http://h/new/x',
  );
});

test('backends: weights, missing, forbidden, without port, of another protocol', () => {
  const backends = (...backendRefs: readonly unknown[]) => {
    const cluster = world({
      services: [
        service('a'),
        service('b'),
        service('ws', {}, 'kubernetes.io/ws'),
        service('h2', {}, 'kubernetes.io/h2c'),
        object('ext', { type: 'ExternalName', ports: [{ port: 80 }] }),
        object('udp', { ports: [{ port: 80, protocol: 'UDP' }] }),
      ],
      httpRoutes: [route('r', [{ backendRefs }])],
    });
    return [cluster.ask('http://h/'), cluster.conditions('HTTPRoute', 'r')[1]];
  };
  const a = { name: 'a', port: 80 };
  assert.deepEqual(backends({ ...a, weight: 90 }, { name: 'b', port: 80, weight: 10 }), [
    'a 90, b 10',
    'ResolvedRefs ResolvedRefs',
  ]);
  assert.deepEqual(backends({ ...a, weight: 0 }), ['500', 'ResolvedRefs ResolvedRefs']);
  assert.deepEqual(backends(), ['500', 'ResolvedRefs ResolvedRefs']);
  assert.deepEqual(backends(a, { name: 'none', port: 80 }), ['a 1, 500 1', '!ResolvedRefs BackendNotFound']);
  assert.deepEqual(backends({ name: 'none', port: 80 }), ['500', '!ResolvedRefs BackendNotFound']);
  assert.deepEqual(backends({ name: 'a', port: 81 }), ['500', '!ResolvedRefs BackendNotFound']);
  assert.deepEqual(backends({ name: 'a' }), ['500', '!ResolvedRefs BackendNotFound']);
  assert.deepEqual(backends({ name: 'ext', port: 80 }), ['500', '!ResolvedRefs InvalidKind']);
  assert.deepEqual(backends({ name: 'udp', port: 80 }), ['500', '!ResolvedRefs UnsupportedProtocol']);
  assert.deepEqual(backends({ ...a, kind: 'Pod' }), ['500', '!ResolvedRefs InvalidKind']);
  assert.deepEqual(backends({ ...a, group: 'x', kind: 'Service' }), ['500', '!ResolvedRefs InvalidKind']);
  assert.deepEqual(backends({ name: 'ws', port: 80 }), ['ws+websocket', 'ResolvedRefs ResolvedRefs']);
  assert.deepEqual(backends({ name: 'h2', port: 80 }), ['h2+h2c', 'ResolvedRefs ResolvedRefs']);
});

test('rules that cannot be applied are answered with 500, and the others are served', () => {
  const extension = { type: 'ExtensionRef', extensionRef: { group: 'x', kind: 'y', name: 'z' } };
  const both = world({
    httpRoutes: [route('r', [rule('a', prefix('/')), rule('b', prefix('/b'), { filters: [extension] })])],
  });
  assert.equal(both.ask('http://h/b'), '500');
  assert.equal(both.ask('http://h/'), 'a');
  assert.deepEqual(both.conditions('HTTPRoute', 'r'), [
    'Accepted Accepted',
    'ResolvedRefs ResolvedRefs',
    'PartiallyInvalid UnsupportedValue',
  ]);
  assert.match(both.messages('HTTPRoute', 'r'), /"Dropped Rule: .*filters\[0\]/);
  const only = world({ httpRoutes: [route('r', [rule('b', null, { filters: [extension] })])] });
  assert.equal(only.ask('http://h/'), '404');
  assert.deepEqual(only.conditions('HTTPRoute', 'r'), [
    '!Accepted UnsupportedValue',
    'ResolvedRefs ResolvedRefs',
  ]);
  assert.deepEqual(only.listener('Gateway', 'gw', 'http')[0], 0);
});

test('values of every field that cannot be applied are refused with the field', () => {
  const filter = (type: string, name: string, value: unknown) => ({ filters: [{ type, [name]: value }] });
  for (const [more, message] of [
    [{ matches: [{ path: { type: 'RegularExpression', value: '(a)\\1' } }] }, /matches\[0\]\.path\.value/],
    [{ matches: [{ path: { type: 'Suffix', value: '/' } }] }, /matches\[0\]\.path\.type/],
    [{ matches: [prefix('/a/../b')] }, /matches no request/],
    [{ matches: [prefix('/a%2Fb')] }, /matches no request/],
    [{ matches: [{ method: 'GET\r\n' }] }, /method/],
    [{ matches: [{ headers: [{ name: 'a b', value: 'x' }] }] }, /headers\[0\]\.name/],
    [{ matches: [{ headers: [{ name: 'a', value: 'x\ny' }] }] }, /headers\[0\]\.value/],
    [
      { matches: [{ queryParams: [{ name: 'a', type: 'RegularExpression', value: '(?=x)' }] }] },
      /queryParams\[0\]\.value/,
    ],
    [
      filter('RequestHeaderModifier', 'requestHeaderModifier', {
        set: [{ name: 'X', value: 'a\r\nHost: b' }],
      }),
      /set\[0\]/,
    ],
    [
      filter('RequestHeaderModifier', 'requestHeaderModifier', {
        add: [{ name: 'Transfer-Encoding', value: 'chunked' }],
      }),
      /cannot be changed/,
    ],
    [
      filter('ResponseHeaderModifier', 'responseHeaderModifier', { remove: ['Content-Length'] }),
      /cannot be changed/,
    ],
    [filter('RequestRedirect', 'requestRedirect', { scheme: 'ftp' }), /scheme/],
    [filter('RequestRedirect', 'requestRedirect', { hostname: 'a b' }), /hostname/],
    [filter('RequestRedirect', 'requestRedirect', { statusCode: 305 }), /statusCode/],
    [
      filter('RequestRedirect', 'requestRedirect', {
        path: { type: 'ReplaceFullPath', replaceFullPath: '/a\nb' },
      }),
      /replaceFullPath/,
    ],
    [filter('URLRewrite', 'urlRewrite', { hostname: '*.x' }), /hostname/],
    [
      {
        matches: [exact('/a')],
        ...filter('URLRewrite', 'urlRewrite', {
          path: { type: 'ReplacePrefixMatch', replacePrefixMatch: '/' },
        }),
      },
      /PathPrefix/,
    ],
    [
      filter('RequestMirror', 'requestMirror', { backendRef: { name: 'a', port: 80 }, percent: 101 }),
      /percent/,
    ],
    [filter('CORS', 'cors', { allowOrigins: ['https://a\r\n'] }), /allowOrigins/],
    [filter('ExternalAuth', 'externalAuth', {}), /not supported/],
    [{ timeouts: { request: '1' } }, /timeouts\.request/],
    [{ timeouts: { request: '1s', backendRequest: '2s' } }, /timeouts\.backendRequest/],
    [{ retry: { attempts: 0 } }, /retry\.attempts/],
    [{ retry: { codes: [200] } }, /retry\.codes/],
    [{ sessionPersistence: { type: 'Header' } }, /sessionPersistence\.type/],
    [{ sessionPersistence: { sessionName: 'a;b' } }, /sessionName/],
  ] as const) {
    const cluster = world({ httpRoutes: [route('r', [rule('a', null, { ...more })])] });
    assert.deepEqual(
      cluster.conditions('HTTPRoute', 'r')[0],
      '!Accepted UnsupportedValue',
      JSON.stringify(more),
    );
    assert.match(cluster.messages('HTTPRoute', 'r'), message);
    assert.equal(cluster.ask('http://h/'), '404');
  }
});

test('filters that exclude each other, or are there twice', () => {
  const redirect = { type: 'RequestRedirect', requestRedirect: { hostname: 'o' } };
  const rewrite = { type: 'URLRewrite', urlRewrite: { hostname: 'o' } };
  const mirror = { type: 'RequestMirror', requestMirror: { backendRef: { name: 'a', port: 80 } } };
  for (const filters of [
    [redirect, rewrite],
    [redirect, mirror],
    [redirect, { type: 'CORS', cors: {} }],
    [rewrite, rewrite],
  ]) {
    const cluster = world({ httpRoutes: [route('r', [rule('a', null, { filters })])] });
    assert.equal(cluster.conditions('HTTPRoute', 'r')[0], '!Accepted IncompatibleFilters');
    assert.equal(cluster.ask('http://h/'), '404');
  }
});

test('filters, timeouts, retries, mirrors and sessions reach the decision', () => {
  const decision = world({
    httpRoutes: [
      route('r', [
        rule('a', null, {
          filters: [
            {
              type: 'RequestHeaderModifier',
              requestHeaderModifier: { set: [{ name: 'X-A', value: '1' }], remove: ['X-B'] },
            },
            {
              type: 'ResponseHeaderModifier',
              responseHeaderModifier: { add: [{ name: 'X-C', value: '2' }] },
            },
            { type: 'URLRewrite', urlRewrite: { hostname: 'inner.example' } },
            { type: 'RequestMirror', requestMirror: { backendRef: { name: 'b', port: 80 } } },
            {
              type: 'RequestMirror',
              requestMirror: {
                backendRef: { name: 'c', port: 80 },
                fraction: { numerator: 1, denominator: 4 },
              },
            },
          ],
          timeouts: { request: '2s', backendRequest: '500ms' },
          retry: { attempts: 3, codes: [503, 502], backoff: '100ms' },
          sessionPersistence: {
            sessionName: 's',
            absoluteTimeout: '1h',
            cookieConfig: { lifetimeType: 'Permanent' },
          },
        }),
      ]),
    ],
  }).decide('http://h/');
  assert.ok(decision.kind === 'forward');
  assert.deepEqual(decision.request, { set: [{ name: 'x-a', value: '1' }], add: [], remove: ['x-b'] });
  assert.deepEqual(decision.response.add, [{ name: 'x-c', value: '2' }]);
  assert.equal(decision.host, 'inner.example');
  assert.deepEqual(
    decision.mirrors.map(({ backend, numerator, denominator }) => [backend, numerator / denominator]),
    [
      ['default/b:80', 1],
      ['default/c:80', 0.25],
    ],
  );
  assert.deepEqual(decision.timeouts, { request: 2000, backend: 500, connect: null });
  assert.deepEqual(decision.retry, { attempts: 3, statuses: [502, 503], backoffMs: 100 });
  assert.deepEqual(decision.affinity, { cookie: 's', lifetime: 3600 });
});

test('what a request must have: a host, and a path that all servers read alike', () => {
  const { ask } = world({ httpRoutes: [route('r', [rule('a', prefix('/p')), rule('b', prefix('/'))])] });
  for (const [target, expected] of [
    ['/p', 'a'],
    ['/p/x', 'a'],
    ['//p', 'b'],
    ['/p//x', 'a'],
    ['/p;v=1/x', 'b'],
    ['/%70', 'b'],
    ['/p?x=/../', 'a'],
    ['/x/../p', '400'],
    ['/p/..', '400'],
    ['/p/.', '400'],
    ['/p/%2e%2e/x', '400'],
    ['/p/.%2E/x', '400'],
    ['/p/..;/x', '400'],
    ['/p/..%3Bx/x', '400'],
    ['/p/.;', '400'],
    ['/p/..x;/x', 'a'],
    ['/p/...', 'a'],
    ['/p%2fx', '400'],
    ['/p%5Cx', '400'],
    ['/p\\x', '400'],
    ['/p%00', '400'],
    ['/p%', '400'],
    ['/p%2', '400'],
    ['/p%zz', '400'],
    ['/p x', '400'],
    ['/p#x', '400'],
    ['/p\u00e9', '400'],
    ['p', '400'],
    ['*', '400'],
    ['http://h/p', '400'],
    [`/${'a'.repeat(8192)}`, '400'],
  ] as const)
    assert.equal(ask('http://h/', { target }), expected, target.slice(0, 40));
  for (const host of ['', 'a b', 'a@b', 'a:b', 'a/b', '[::1', 'a:123456', 'h,h'])
    assert.equal(ask('http://h/', { host }), '400', host);
  assert.equal(ask('http://h/', { host: '[::1]:80' }), 'b');
});
