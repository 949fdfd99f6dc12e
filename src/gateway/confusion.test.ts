import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GatewayObject } from './objects.ts';
import { gateway, listener, object, prefix, route, rule, tlsListener } from './testing/objects.ts';
import { world } from './testing/world.ts';

/** Objects of one namespace that reach for what belongs to another: faults that other implementations had. */

const grant = (
  namespace: string,
  from: Readonly<Record<string, string>>,
  to: Readonly<Record<string, string>>,
): GatewayObject =>
  object(
    'grant',
    { from: [{ group: 'gateway.networking.k8s.io', ...from }], to: [{ group: '', ...to }] },
    { namespace },
  );

const theirs = { backendRefs: [{ name: 'a', namespace: 'other', port: 80 }] };

test('a backend of another namespace needs a grant there, for this kind, namespace and name', () => {
  const reach = (...referenceGrants: readonly GatewayObject[]) =>
    world({ httpRoutes: [route('r', [theirs])], referenceGrants }).ask('http://h/');
  assert.equal(reach(), '500');
  assert.equal(
    reach(grant('other', { kind: 'HTTPRoute', namespace: 'default' }, { kind: 'Service' })),
    'other/a',
  );
  assert.equal(
    reach(grant('other', { kind: 'HTTPRoute', namespace: 'default' }, { kind: 'Service', name: 'a' })),
    'other/a',
  );
  // In the wrong direction: written by the one who reaches.
  assert.equal(
    reach(grant('default', { kind: 'HTTPRoute', namespace: 'other' }, { kind: 'Service' })),
    '500',
  );
  assert.equal(
    reach(grant('default', { kind: 'HTTPRoute', namespace: 'default' }, { kind: 'Service' })),
    '500',
  );
  assert.equal(reach(grant('other', { kind: 'HTTPRoute', namespace: 'other' }, { kind: 'Service' })), '500');
  assert.equal(
    reach(grant('other', { kind: 'GRPCRoute', namespace: 'default' }, { kind: 'Service' })),
    '500',
  );
  assert.equal(reach(grant('other', { kind: 'HTTPRoute', namespace: 'default' }, { kind: 'Secret' })), '500');
  assert.equal(
    reach(grant('other', { kind: 'HTTPRoute', namespace: 'default' }, { kind: 'Service', name: 'b' })),
    '500',
  );
  assert.equal(
    reach(grant('other', { kind: 'HTTPRoute', namespace: 'default', group: '' }, { kind: 'Service' })),
    '500',
  );
  assert.equal(
    reach(grant('other', { kind: 'HTTPRoute', namespace: 'default' }, { kind: 'Service', group: 'x' })),
    '500',
  );
});

test('mirrors, streams and gRPC need the same grants', () => {
  const mirror = {
    type: 'RequestMirror',
    requestMirror: { backendRef: { name: 'a', namespace: 'other', port: 80 } },
  };
  const mirrored = world({ httpRoutes: [route('r', [rule('a', null, { filters: [mirror] })])] });
  const decision = mirrored.decide('http://h/');
  assert.deepEqual(decision.kind === 'forward' && decision.mirrors, []);
  assert.equal(mirrored.conditions('HTTPRoute', 'r')[1], '!ResolvedRefs RefNotPermitted');
  assert.equal(world({ grpcRoutes: [route('r', [theirs])] }).ask('http://h/s/m'), '503');
  const tcp = world({
    gateways: [gateway('gw', [listener('tcp', { port: 9, protocol: 'TCP' })])],
    tcpRoutes: [route('r', [theirs])],
  });
  assert.equal(tcp.ask('tcp://h/', { port: 9 }), 'close');
});

test('whether a forbidden object exists is not said', () => {
  const message = (name: string) =>
    world({ httpRoutes: [route('r', [{ backendRefs: [{ name, namespace: 'other', port: 80 }] }])] })
      .messages('HTTPRoute', 'r')
      .replaceAll(`\\"${name}\\"`, 'NAME');
  assert.equal(message('a'), message('none'));
  const secret = (name: string) =>
    world({
      gateways: [
        gateway('gw', [
          tlsListener('https', 'a.example', { tls: { certificateRefs: [{ name, namespace: 'other' }] } }),
        ]),
      ],
    })
      .messages('Gateway', 'gw')
      .replaceAll(`\\"${name}\\"`, 'NAME');
  assert.equal(secret('tls'), secret('none'));
});

test('Secrets and authorities of another namespace need a grant for a Gateway; one for routes is none', () => {
  const state = (referenceGrants: readonly GatewayObject[]) =>
    world({
      gateways: [
        gateway(
          'gw',
          [
            tlsListener('https', 'a.example', {
              tls: { certificateRefs: [{ name: 'tls', namespace: 'other' }] },
            }),
          ],
          {},
          {
            tls: {
              frontend: {
                default: {
                  validation: {
                    caCertificateRefs: [{ kind: 'ConfigMap', name: 'ca', namespace: 'default' }],
                  },
                },
              },
            },
          },
        ),
      ],
      httpRoutes: [route('r', [rule('a')])],
      referenceGrants,
    }).ask('https://a.example/');
  assert.equal(state([]), 'close');
  assert.equal(
    state([grant('other', { kind: 'Gateway', namespace: 'default' }, { kind: 'Secret', name: 'tls' })]),
    'a',
  );
  assert.equal(
    state([grant('other', { kind: 'HTTPRoute', namespace: 'default' }, { kind: 'Secret' })]),
    'close',
  );
  assert.equal(
    state([grant('other', { kind: 'ListenerSet', namespace: 'default' }, { kind: 'Secret' })]),
    'close',
  );
});

test("a grant for a Gateway is none for its ListenerSets, and a set's namespace is its own", () => {
  const listenerSet = (namespace: string) =>
    object(
      'set',
      {
        parentRef: { name: 'gw', namespace: 'default' },
        listeners: [
          tlsListener('https', 'set.example', {
            tls: { certificateRefs: [{ name: 'tls', namespace: 'default' }] },
          }),
        ],
      },
      { namespace },
    );
  const state = (referenceGrants: readonly GatewayObject[]) =>
    world({
      gateways: [
        gateway('gw', [listener('http')], {}, { allowedListeners: { namespaces: { from: 'All' } } }),
      ],
      listenerSets: [listenerSet('other')],
      referenceGrants,
    }).listener('ListenerSet', 'other/set', 'https');
  assert.equal(state([])[4], '!ResolvedRefs RefNotPermitted');
  assert.equal(
    state([grant('default', { kind: 'Gateway', namespace: 'other' }, { kind: 'Secret' })])[4],
    '!ResolvedRefs RefNotPermitted',
  );
  assert.equal(
    state([grant('default', { kind: 'ListenerSet', namespace: 'other' }, { kind: 'Secret' })])[4],
    'ResolvedRefs ResolvedRefs',
  );
});

test('a listener takes routes of the namespaces that it allows only', () => {
  const from = (namespaces: unknown) => {
    const cluster = world({
      gateways: [
        gateway('gw', [
          listener('http', { allowedRoutes: namespaces === undefined ? undefined : { namespaces } }),
        ]),
      ],
      httpRoutes: [route('r', [rule('a')], { namespace: 'other' })],
    });
    return cluster.ask('http://h/') === 'other/a';
  };
  assert.equal(from({ from: 'All' }), true);
  assert.equal(from(undefined), false);
  assert.equal(from({ from: 'Same' }), false);
  assert.equal(from({ from: 'None' }), false);
  assert.equal(from({ from: 'all' }), false);
  assert.equal(from({ from: 'Selector', selector: { matchLabels: { team: 'other' } } }), true);
  assert.equal(from({ from: 'Selector', selector: { matchLabels: { team: 'x' } } }), false);
  assert.equal(
    from({
      from: 'Selector',
      selector: { matchExpressions: [{ key: 'team', operator: 'Near', values: [] }] },
    }),
    false,
  );
  assert.equal(from({ from: 'Selector' }), false);
});

test('an older route keeps its host and path; a younger one gets only what is more specific', () => {
  const { ask } = world({
    httpRoutes: [
      route('victim', [rule('a', prefix('/cart'))], { age: 1 }, { hostnames: ['shop.example'] }),
      route(
        'thief',
        [rule('a', prefix('/cart'))],
        { age: 2, namespace: 'other' },
        { hostnames: ['shop.example'] },
      ),
      route('wide', [rule('a', prefix('/'))], { age: 0, namespace: 'other' }, { hostnames: ['*.example'] }),
    ],
  });
  assert.equal(ask('http://shop.example/cart/1'), 'a');
  assert.equal(ask('http://shop.example/else'), 'other/a');
});

test('listeners with whole names keep routes of other namespaces out of their hosts', () => {
  const own = { namespaces: { from: 'Same' } };
  const { ask, conditions } = world({
    gateways: [
      gateway('gw', [listener('shop', { hostname: 'shop.example', allowedRoutes: own }), listener('all')]),
    ],
    httpRoutes: [
      route('shop', [rule('a', prefix('/cart'))]),
      route('wide', [rule('a')], { namespace: 'other' }),
      route('thief', [rule('a')], { namespace: 'other' }, { hostnames: ['shop.example'] }),
    ],
  });
  assert.equal(ask('http://shop.example/cart'), 'a');
  // Neither a route for all hosts nor one for this host gets what no rule of the listener takes.
  assert.equal(ask('http://shop.example/else'), '404');
  assert.equal(ask('http://b.example/'), 'other/a');
  assert.equal(conditions('HTTPRoute', 'other/thief')[0], 'Accepted Accepted');
});

test('keys that are made of names cannot be forged with names', () => {
  const { ask, routeMap } = world({
    httpRoutes: [
      route('r', [{ backendRefs: [{ name: 'other/a', port: 80 }] }]),
      route('r', [rule('a')], { namespace: '__proto__' }),
      { ...route('r', [rule('a')]), metadata: { name: 'x/y', namespace: 'default' } },
      { ...route('r', [rule('a')]), metadata: { name: 'a\nb', namespace: 'default' } },
    ],
  });
  assert.equal(ask('http://h/'), '500');
  assert.deepEqual(routeMap.backends, []);
});

test('objects of any shape neither throw nor take down others', () => {
  const junk: readonly unknown[] = [
    null,
    7,
    'text',
    '',
    [],
    {},
    [null],
    [{}],
    true,
    '__proto__',
    { constructor: 1 },
    -1,
    1e99,
  ];
  const fields = [
    'parentRefs',
    'hostnames',
    'rules',
    'listeners',
    'addresses',
    'tls',
    'allowedListeners',
    'infrastructure',
    'targetRefs',
    'validation',
    'from',
    'to',
    'parentRef',
    'gatewayClassName',
  ];
  const deep = (value: unknown) => [
    {
      matches: value,
      filters: value,
      backendRefs: value,
      timeouts: value,
      retry: value,
      sessionPersistence: value,
    },
    {
      matches: [value, { path: value, headers: [value], queryParams: value, method: value }],
      filters: [value, { type: 'CORS', cors: value }],
      backendRefs: [value, { name: value, filters: [value] }],
    },
  ];
  for (const value of junk) {
    const spec = Object.fromEntries(fields.map((field) => [field, value]));
    const broken = [
      object('x', spec),
      object('y', value),
      object('z', { ...spec, parentRefs: [{ name: 'gw' }, value], rules: deep(value) }),
      { metadata: value as never },
    ];
    const gateways = [
      gateway('gw', [
        listener('http'),
        value,
        listener('odd', { hostname: value, port: value, protocol: value, tls: value, allowedRoutes: value }),
      ]),
      object('g', { gatewayClassName: 'fairlead', ...spec, listeners: [value] }),
    ];
    const cluster = world({
      gateways,
      listenerSets: broken,
      httpRoutes: [...broken, route('good', [rule('a', prefix('/good'))])],
      grpcRoutes: broken,
      tlsRoutes: broken,
      tcpRoutes: broken,
      udpRoutes: broken,
      referenceGrants: broken,
      backendTlsPolicies: broken,
    });
    assert.equal(cluster.ask('http://h/good'), 'a', JSON.stringify(value));
  }
});
