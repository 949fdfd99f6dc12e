import assert from 'node:assert/strict';
import { test } from 'node:test';
import { condition, verdict } from './conditions.ts';
import type { GatewayObject } from './objects.ts';
import { DECIDED_FEATURES, SUPPORTED_FEATURES } from './supported-features.ts';
import {
  gateway,
  gatewayClass,
  listener,
  object,
  prefix,
  route,
  rule,
  service,
  tlsListener,
} from './testing/objects.ts';
import { world } from './testing/world.ts';

const OK = [
  'Accepted Accepted',
  '!Conflicted NoConflicts',
  'Programmed Programmed',
  'ResolvedRefs ResolvedRefs',
];

test('a class is accepted, with the features in order; those of other controllers are left alone', () => {
  const { statuses, conditions } = world({
    gatewayClasses: [
      gatewayClass(),
      gatewayClass('with-parameters', { parametersRef: { group: 'x', kind: 'y', name: 'z' } }),
      object('theirs', { controllerName: 'x.example/y' }),
    ],
    gateways: [],
  });
  const classes = statuses.filter(({ kind }) => kind === 'GatewayClass');
  assert.deepEqual(
    classes.map(({ name }) => name),
    ['fairlead', 'with-parameters'],
  );
  assert.deepEqual(conditions('GatewayClass', 'with-parameters'), ['!Accepted InvalidParameters']);
  const refused = world({
    gatewayClasses: [gatewayClass('fairlead', { parametersRef: { group: 'x', kind: 'y', name: 'z' } })],
    httpRoutes: [route('r', [rule('a')])],
  });
  assert.deepEqual(refused.conditions('Gateway', 'gw').slice(0, 2), [
    '!Accepted InvalidParameters',
    '!Programmed Invalid',
  ]);
  assert.equal(refused.ask('http://h/'), 'close');
  for (const features of [DECIDED_FEATURES, SUPPORTED_FEATURES])
    assert.deepEqual([...features].sort(), features);
});

test('conditions carry the generation of their object', () => {
  const { statuses } = world({
    gateways: [gateway('gw', [listener('http')], { generation: 7 })],
    httpRoutes: [route('r', [rule('a')], { generation: 9 })],
  });
  const shown = statuses.map(({ kind, status }) => [
    kind,
    [...JSON.stringify(status).matchAll(/"observedGeneration":(\d+)/g)].map(([, n]) => n),
  ]);
  assert.deepEqual(Object.fromEntries(shown), {
    GatewayClass: ['1'],
    Gateway: ['7', '7', '7', '7', '7', '7', '7'],
    HTTPRoute: ['9', '9'],
  });
  assert.equal(condition('X', verdict(true, 'Y', 'm'.repeat(5000)), 1).message.length, 1024);
});

test('labels and annotations of the infrastructure, but none of this project or of Kubernetes', () => {
  const labels = { team: 'a', 'fairlead.dev/x': 'b', 'app.kubernetes.io/name': 'c', 'x y': 'd', n: 7 };
  const { routeMap } = world({
    gateways: [
      gateway(
        'gw',
        [listener('http')],
        {},
        { infrastructure: { labels, annotations: { 'a.example/b': 'free text' } } },
      ),
    ],
  });
  assert.deepEqual(routeMap.gateways[0]?.infrastructure, {
    labels: { team: 'a' },
    annotations: { 'a.example/b': 'free text' },
  });
});

test('a Gateway without an address, with one that is not to be had, or of another type', () => {
  const gateways = (addresses: readonly unknown[]) => [gateway('gw', [listener('http')], {}, { addresses })];
  const programmed = (given: readonly unknown[], assigned: readonly string[]) =>
    world({ gateways: gateways(given), addresses: new Map([['gateway/default/gw', assigned]]) })
      .conditions('Gateway', 'gw')
      .slice(0, 2);
  assert.deepEqual(programmed([], []), ['Accepted Accepted', '!Programmed AddressNotAssigned']);
  assert.deepEqual(programmed([{ value: '192.0.2.7' }], ['192.0.2.7']), [
    'Accepted Accepted',
    'Programmed Programmed',
  ]);
  assert.deepEqual(programmed([{ value: '192.0.2.7' }], ['192.0.2.8']), [
    'Accepted Accepted',
    '!Programmed AddressNotUsable',
  ]);
  assert.deepEqual(programmed([{ type: 'IPAddress' }], ['192.0.2.8']), [
    'Accepted Accepted',
    'Programmed Programmed',
  ]);
  assert.deepEqual(programmed([{ type: 'Hostname', value: 'a' }], ['192.0.2.8']), [
    '!Accepted UnsupportedAddress',
    '!Programmed Invalid',
  ]);
  assert.deepEqual(programmed([{ value: 'a' }], ['192.0.2.8']), [
    '!Accepted UnsupportedAddress',
    '!Programmed Invalid',
  ]);
  assert.deepEqual(world({ gateways: gateways([{ value: '192.0.2.7' }]) }).routeMap.gateways[0]?.addresses, [
    '192.0.2.7',
  ]);
});

test('listeners that cannot be told apart are all refused, and the others are served', () => {
  const {
    listener: state,
    conditions,
    ask,
  } = world({
    gateways: [
      gateway('gw', [
        listener('one', { hostname: 'a.example' }),
        listener('two', { hostname: 'a.example' }),
        listener('three', { hostname: 'b.example' }),
        listener('tls', { port: 90, protocol: 'HTTPS', tls: { certificateRefs: [{ name: 'tls' }] } }),
        listener('plain', { port: 90 }),
        listener('tcp', { port: 91, protocol: 'TCP' }),
        listener('udp', { port: 91, protocol: 'UDP' }),
        listener('strange', { port: 92, protocol: 'SCTP' }),
      ]),
    ],
    httpRoutes: [route('r', [rule('a')])],
  });
  const hostname = [
    1,
    '!Accepted HostnameConflict',
    'Conflicted HostnameConflict',
    '!Programmed HostnameConflict',
    'ResolvedRefs ResolvedRefs',
  ];
  assert.deepEqual(state('Gateway', 'gw', 'one'), hostname);
  assert.deepEqual(state('Gateway', 'gw', 'two'), hostname);
  assert.deepEqual(state('Gateway', 'gw', 'three'), [1, ...OK]);
  for (const name of ['tls', 'plain'])
    assert.equal(state('Gateway', 'gw', name)[1], '!Accepted ProtocolConflict');
  for (const name of ['tcp', 'udp']) assert.deepEqual(state('Gateway', 'gw', name), [0, ...OK]);
  assert.equal(state('Gateway', 'gw', 'strange')[1], '!Accepted UnsupportedProtocol');
  assert.equal(conditions('Gateway', 'gw')[0], 'Accepted ListenersNotValid');
  assert.equal(ask('http://b.example/'), 'a');
  assert.equal(ask('http://a.example/'), '404');
  assert.equal(ask('http://a.example/', { port: 90 }), 'close');
});

test('certificates and authorities: missing, of another kind, malformed; what each condition says', () => {
  const secure = (certificateRefs: readonly unknown[], more: Readonly<Record<string, unknown>> = {}) =>
    world({
      gateways: [gateway('gw', [tlsListener('https', 'a.example', { tls: { certificateRefs } })], {}, more)],
      certificates: new Map([
        ['default/tls', null],
        ['default/broken', 'has no tls.key'],
        ['other/tls', null],
      ]),
      httpRoutes: [route('r', [rule('a')])],
    });
  for (const [refs, reason] of [
    [[{ name: 'none' }], 'InvalidCertificateRef'],
    [[{ name: 'broken' }], 'InvalidCertificateRef'],
    [[{ name: 'tls', kind: 'ConfigMap' }], 'InvalidCertificateRef'],
    [[{ name: 'tls', group: 'x' }], 'InvalidCertificateRef'],
    [[], 'InvalidCertificateRef'],
    [[{ name: 'tls', namespace: 'other' }], 'RefNotPermitted'],
  ] as const) {
    const cluster = secure(refs);
    assert.deepEqual(cluster.listener('Gateway', 'gw', 'https'), [
      1,
      'Accepted Accepted',
      '!Conflicted NoConflicts',
      '!Programmed Invalid',
      `!ResolvedRefs ${reason}`,
    ]);
    assert.equal(cluster.conditions('Gateway', 'gw')[2], '!ResolvedRefs ListenersNotResolved');
    assert.equal(cluster.ask('https://a.example/'), 'close');
  }
  const frontend = (validation: unknown) => ({ tls: { frontend: { default: { validation } } } });
  const tls = [{ name: 'tls' }];
  const unknown = secure(tls, frontend({ caCertificateRefs: [{ kind: 'ConfigMap', name: 'none' }] }));
  assert.deepEqual(unknown.listener('Gateway', 'gw', 'https').slice(1), [
    '!Accepted NoValidCACertificate',
    '!Conflicted NoConflicts',
    '!Programmed Invalid',
    '!ResolvedRefs InvalidCACertificateRef',
  ]);
  assert.equal(unknown.ask('https://a.example/'), 'close');
  const fallback = secure(
    tls,
    frontend({ mode: 'AllowInsecureFallback', caCertificateRefs: [{ kind: 'ConfigMap', name: 'ca' }] }),
  );
  assert.equal(
    fallback.conditions('Gateway', 'gw')[3],
    'InsecureFrontendValidationMode ConfigurationChanged',
  );
  const port = fallback.routeMap.gateways[0]?.ports[0];
  assert.deepEqual(port?.kind === 'tls' && 'tls' in (port.listeners[0] ?? {}) && port.listeners[0], {
    kind: 'https',
    name: 'https',
    hostname: 'a.example',
    hosts: port?.kind === 'tls' ? port.listeners[0]?.hosts : [],
    tls: {
      certificates: ['default/tls'],
      minVersion: '1.2',
      clients: { authorities: ['default/ConfigMap/ca'], optional: true },
    },
  });
});

const set = (
  name: string,
  listeners: readonly unknown[],
  meta = {},
  parentRef: unknown = { name: 'gw', namespace: 'default' },
): GatewayObject => object(name, { parentRef, listeners }, meta);

test('ListenerSets: allowed ones are merged, the Gateway and older sets keep what they have', () => {
  const allowed = (from: string | null) => [
    gateway(
      'gw',
      [listener('http', { hostname: 'gw.example' })],
      {},
      from === null ? {} : { allowedListeners: { namespaces: { from } } },
    ),
  ];
  const sets = [
    set(
      'old',
      [listener('own', { hostname: 'old.example' }), listener('taken', { hostname: 'gw.example' })],
      { age: 1 },
    ),
    set('new', [listener('own', { hostname: 'old.example' })], { age: 2 }),
    set('away', [listener('own', { hostname: 'away.example' })], { namespace: 'other' }),
  ];
  const parents = { parentRefs: [{ kind: 'ListenerSet', group: 'gateway.networking.k8s.io', name: 'old' }] };
  const cluster = world({
    gateways: allowed('Same'),
    listenerSets: sets,
    httpRoutes: [route('r', [rule('a')], {}, parents), route('g', [rule('b')])],
  });
  assert.deepEqual(cluster.conditions('ListenerSet', 'old'), [
    'Accepted ListenersNotValid',
    'Programmed Programmed',
  ]);
  assert.deepEqual(cluster.listener('ListenerSet', 'old', 'own'), [1, ...OK]);
  assert.equal(cluster.listener('ListenerSet', 'old', 'taken')[2], 'Conflicted HostnameConflict');
  assert.deepEqual(cluster.conditions('ListenerSet', 'new'), [
    '!Accepted ListenersNotValid',
    '!Programmed ListenersNotValid',
  ]);
  assert.deepEqual(cluster.conditions('ListenerSet', 'other/away'), [
    '!Accepted NotAllowed',
    '!Programmed NotAllowed',
  ]);
  assert.match(cluster.messages('Gateway', 'gw'), /"attachedListenerSets":1/);
  assert.equal(cluster.ask('http://old.example/'), 'a');
  assert.equal(cluster.ask('http://gw.example/'), 'b');
  const none = world({ gateways: allowed(null), listenerSets: sets });
  assert.deepEqual(none.conditions('ListenerSet', 'old'), ['!Accepted NotAllowed', '!Programmed NotAllowed']);
  assert.deepEqual(none.conditions('Gateway', 'gw')[0], 'Accepted Accepted');
});

test('parentRefs: section names and ports, and the reasons for which a route is not accepted', () => {
  const gateways = [
    gateway('gw', [
      listener('a', { hostname: 'a.example' }),
      listener('b', {
        port: 81,
        hostname: 'b.example',
        allowedRoutes: { namespaces: { from: 'Same' }, kinds: [{ kind: 'GRPCRoute' }] },
      }),
    ]),
  ];
  const accepted = (parent: Readonly<Record<string, unknown>>, more = {}, meta = {}) =>
    world({
      gateways,
      httpRoutes: [
        route('r', [rule('a')], meta, {
          parentRefs: [{ name: 'gw', namespace: 'default', ...parent }],
          ...more,
        }),
      ],
    }).conditions('HTTPRoute', meta === undefined ? 'r' : 'r')[0];
  assert.equal(accepted({}), 'Accepted Accepted');
  assert.equal(accepted({ sectionName: 'a', port: 80 }), 'Accepted Accepted');
  assert.equal(accepted({ sectionName: 'none' }), '!Accepted NoMatchingParent');
  assert.equal(accepted({ port: 82 }), '!Accepted NoMatchingParent');
  assert.equal(accepted({ sectionName: 'a', port: 81 }), '!Accepted NoMatchingParent');
  assert.equal(accepted({ sectionName: 'b' }), '!Accepted NotAllowedByListeners');
  assert.equal(accepted({}, { hostnames: ['c.example'] }), '!Accepted NoMatchingListenerHostname');
  assert.equal(accepted({}, { hostnames: ['not a name'] }), '!Accepted UnsupportedValue');
  assert.equal(accepted({ name: 'none' }), undefined);
  assert.equal(accepted({ kind: 'Service', group: '' }), undefined);
});

test('a status of ours is emptied when no parent is ours any longer', () => {
  const stale: GatewayObject = {
    ...route('r', [], {}, { parentRefs: [{ name: 'none' }] }),
    status: { parents: [{ controllerName: 'fairlead.dev/gateway' }] },
  };
  const theirs: GatewayObject = {
    ...route('s', [], {}, { parentRefs: [{ name: 'none' }] }),
    status: { parents: [{ controllerName: 'x/y' }] },
  };
  const { statuses } = world({ httpRoutes: [stale, theirs] });
  assert.deepEqual(
    statuses.filter(({ kind }) => kind === 'HTTPRoute'),
    [{ kind: 'HTTPRoute', namespace: 'default', name: 'r', status: { parents: [] } }],
  );
});

test('GRPCRoutes: services and methods, and one kind of route a host', () => {
  const grpc = (name: string, rules: readonly unknown[], meta = {}, more = {}) =>
    route(name, rules, meta, more);
  const method = (service?: string, method?: string, more = {}) => ({
    method: { ...(service ? { service } : {}), ...(method ? { method } : {}) },
    ...more,
  });
  const { ask, conditions } = world({
    grpcRoutes: [
      grpc('r', [
        rule('a', method('pkg.Svc')),
        rule('b', method('pkg.Svc', 'Get')),
        rule('c', method(undefined, 'Get')),
        rule('d', method('pkg.Svc', undefined, { headers: [{ name: 'v', value: '2' }] })),
      ]),
    ],
    httpRoutes: [
      route('http', [rule('a')], { age: 5 }),
      route('elsewhere', [rule('a')], { age: 5 }, { parentRefs: [{ name: 'gw', sectionName: 'none' }] }),
    ],
  });
  assert.equal(ask('http://h/pkg.Svc/Get'), 'b+h2c');
  assert.equal(ask('http://h/pkg.Svc/Put'), 'a+h2c');
  assert.equal(ask('http://h/pkg.Svc/Put', { headers: [{ name: 'V', value: '2' }] }), 'd+h2c');
  assert.equal(ask('http://h/other.Svc/Get'), 'c+h2c');
  assert.equal(ask('http://h/other.Svc/Put'), '404');
  assert.deepEqual(conditions('HTTPRoute', 'http')[0], '!Accepted NotAllowedByListeners');
  const wide = world({
    httpRoutes: [route('http', [rule('a')], {}, { hostnames: ['*.example'] })],
    grpcRoutes: [
      grpc('same', [rule('a')], { age: 1 }, { hostnames: ['x.y.example'] }),
      grpc('apart', [rule('b')], { age: 1 }, { hostnames: ['x.test'] }),
    ],
  });
  assert.deepEqual(
    [wide.conditions('GRPCRoute', 'same')[0], wide.conditions('GRPCRoute', 'apart')[0]],
    ['!Accepted NotAllowedByListeners', 'Accepted Accepted'],
  );
  assert.equal(wide.ask('http://x.test/s/m'), 'b+h2c');
  const unusable = world({ grpcRoutes: [grpc('r', [rule('none')])] });
  assert.equal(unusable.ask('http://h/s/m'), '503', 'gRPC clients read 503 as UNAVAILABLE');
});

test('TLSRoutes by server name, TCPRoutes and UDPRoutes by port; the oldest has a place', () => {
  const tls = (name: string, hostname: string | undefined, mode: string) => ({
    name,
    port: 443,
    protocol: 'TLS',
    ...(hostname ? { hostname } : {}),
    tls: { mode, ...(mode === 'Terminate' ? { certificateRefs: [{ name: 'tls' }] } : {}) },
    allowedRoutes: { namespaces: { from: 'All' } },
  });
  const {
    decide,
    ask,
    listener: state,
    conditions,
  } = world({
    gateways: [
      gateway('gw', [
        tls('pass', '*.pass.example', 'Passthrough'),
        tls('end', 'end.example', 'Terminate'),
        tlsListener('https', 'web.example'),
        listener('tcp', { port: 53, protocol: 'TCP' }),
        listener('udp', { port: 53, protocol: 'UDP' }),
      ]),
    ],
    services: [
      service('a'),
      service('b'),
      object('dns', { ports: [{ port: 53, protocol: 'UDP' }, { port: 53 }] }),
    ],
    tlsRoutes: [
      route('wide', [rule('a')], { age: 1 }, { hostnames: ['*.example'] }),
      route('whole', [rule('b')], { age: 2 }, { hostnames: ['x.pass.example'] }),
      route('late', [rule('a')], { age: 3 }, { hostnames: ['x.pass.example'] }),
    ],
    httpRoutes: [route('web', [rule('a')])],
    tcpRoutes: [
      route(
        't1',
        [
          {
            backendRefs: [
              { name: 'dns', port: 53, weight: 3 },
              { name: 'a', port: 80, weight: 1 },
              { name: 'b', port: 80, weight: 0 },
            ],
          },
        ],
        { age: 1 },
      ),
      route('t2', [rule('b')], { age: 2 }),
    ],
    udpRoutes: [
      route('u', [{ backendRefs: [{ name: 'dns', port: 53 }] }]),
      route('bad', [rule('a')], { age: 2 }),
    ],
  });
  assert.equal(ask('https://x.pass.example/'), 'b+tcp');
  assert.equal(ask('https://y.pass.example/'), 'a+tcp');
  assert.equal(ask('https://end.example/'), 'a+tcp');
  assert.equal(
    decide('https://end.example/').kind === 'stream' &&
      (decide('https://end.example/') as { terminated: boolean }).terminated,
    true,
  );
  assert.equal(ask('https://web.example/'), 'a');
  assert.equal(ask('https://web.example/', { host: 'x.pass.example' }), '421');
  assert.equal(ask('tcp://h/', { port: 53 }), 'dns:53+tcp 3, a+tcp 1');
  assert.equal(ask('udp://h/', { port: 53, transport: 'udp' }), 'dns:53+udp');
  assert.equal(state('Gateway', 'gw', 'tcp')[0], 2);
  assert.deepEqual(conditions('TCPRoute', 't2'), ['Accepted Accepted', 'ResolvedRefs ResolvedRefs']);
  assert.deepEqual(conditions('UDPRoute', 'bad'), ['Accepted Accepted', '!ResolvedRefs UnsupportedProtocol']);
  const empty = world({
    gateways: [gateway('gw', [listener('tcp', { port: 53, protocol: 'TCP' })])],
    tcpRoutes: [route('t', [rule('none')])],
  });
  assert.equal(empty.ask('tcp://h/', { port: 53 }), 'close');
});

test('BackendTLSPolicies: the port before the Service, the oldest, and never plain text in place of TLS', () => {
  const policy = (
    name: string,
    age: number,
    sectionName: string | null,
    validation: Readonly<Record<string, unknown>> = {},
  ) =>
    object(
      name,
      {
        targetRefs: [{ group: '', kind: 'Service', name: 'a', ...(sectionName ? { sectionName } : {}) }],
        validation: {
          hostname: `${name}.example`,
          caCertificateRefs: [{ group: '', kind: 'ConfigMap', name: 'ca' }],
          ...validation,
        },
      },
      { age },
    );
  const cluster = world({
    backendTlsPolicies: [policy('all', 1, null), policy('port', 2, 'alt'), policy('late', 3, null)],
    httpRoutes: [
      route('r', [
        rule('a', prefix('/')),
        { matches: [prefix('/alt')], backendRefs: [{ name: 'a', port: 8080 }] },
      ]),
    ],
  });
  assert.deepEqual(
    cluster.routeMap.backends.map(({ port, tls }) => [port, tls]),
    [
      [
        80,
        {
          hostname: 'all.example',
          names: [],
          authorities: ['default/ConfigMap/ca'],
          verify: true,
          certificate: null,
        },
      ],
      [
        8080,
        {
          hostname: 'port.example',
          names: [],
          authorities: ['default/ConfigMap/ca'],
          verify: true,
          certificate: null,
        },
      ],
    ],
  );
  assert.deepEqual(
    ['all', 'port', 'late'].map((name) => cluster.conditions('BackendTLSPolicy', name)[0]),
    ['Accepted Accepted', 'Accepted Accepted', '!Accepted Conflicted'],
  );
  for (const [validation, accepted] of [
    [
      { caCertificateRefs: [{ group: '', kind: 'ConfigMap', name: 'none' }] },
      '!Accepted NoValidCACertificate',
    ],
    [{ caCertificateRefs: [{ group: '', kind: 'Pod', name: 'ca' }] }, '!Accepted NoValidCACertificate'],
    [{ caCertificateRefs: [], wellKnownCACertificates: 'Other' }, '!Accepted Invalid'],
    [{ caCertificateRefs: [] }, '!Accepted Invalid'],
    [{ hostname: '*.example' }, '!Accepted Invalid'],
    [{ subjectAltNames: [{ type: 'URI', uri: 'no uri' }] }, '!Accepted Invalid'],
  ] as const) {
    const broken = world({
      backendTlsPolicies: [policy('p', 1, null, validation)],
      httpRoutes: [route('r', [rule('a')])],
    });
    assert.equal(broken.conditions('BackendTLSPolicy', 'p')[0], accepted);
    assert.equal(broken.ask('http://h/'), '500');
  }
  const client = { tls: { backend: { clientCertificateRef: { name: 'tls' } } } };
  const shown = world({
    gateways: [gateway('gw', [listener('http')], {}, client)],
    backendTlsPolicies: [policy('all', 1, null)],
    httpRoutes: [route('r', [rule('a')])],
  });
  assert.equal(shown.routeMap.backends[0]?.tls?.certificate, 'default/tls');
});
