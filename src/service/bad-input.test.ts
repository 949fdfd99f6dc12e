import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compile } from './compile.ts';
import type { ServiceMap } from './model.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import { JUNK } from './testing/nasty-objects.ts';
import { webService, webSlice } from './testing/objects.ts';
import { testNode } from './testing/test-node.ts';

const WEB = 'ipv4/10.96.0.1/TCP/80';
const GOOD = webSlice(['10.244.1.2 @node-1']);

/** Objects as a careless client might send them, which no type allows. */
const service = (spec: object, metadata: object = {}) =>
  webService(spec as NonNullable<ServiceObject['spec']>, metadata as NonNullable<ServiceObject['metadata']>);
const ingress = (items: unknown) =>
  ({ ...service({}), status: { loadBalancer: { ingress: items } } }) as ServiceObject;
const slice = (change: object) => webSlice(['10.244.1.2'], change as Partial<EndpointSliceObject>);
const endpoints = (...items: unknown[]) => slice({ endpoints: [...items, { addresses: ['10.244.1.9'] }] });

/** The objects; the keys of the map's frontends; "reason message" of the findings, as patterns. */
type Row = readonly [
  input: { readonly services?: readonly unknown[]; readonly slices?: readonly unknown[] },
  keys: readonly string[],
  findings: readonly RegExp[],
];

const rows: Record<string, Row> = {
  'an unknown protocol': [
    {
      services: [
        service({
          ports: [
            { name: 'a', port: 1, protocol: 'ICMP' },
            { name: 'http', port: 80 },
          ],
        }),
      ],
    },
    [WEB],
    [/^UnknownProtocol spec\.ports\[0\]\.protocol: "ICMP" .*TCP, UDP or SCTP/],
  ],
  'ports that are not numbers': [
    {
      services: [
        service({ ports: [{ port: 0 }, { port: 70_000 }, { port: '80' }, {}, { name: 'http', port: 80 }] }),
      ],
    },
    [WEB],
    [/^InvalidPort spec\.ports\[0\]\.port: 0 .*use 1 to 65535 \(and 3 more\)/],
  ],
  'a duplicate port': [
    {
      services: [
        service({
          ports: [
            { name: 'http', port: 80 },
            { name: 'b', port: 80 },
          ],
        }),
      ],
    },
    [WEB],
    [/^DuplicatePort spec\.ports\[1\]\.port: 80\/TCP .*remove one/],
  ],
  'a duplicate port name': [
    {
      services: [
        service({
          ports: [
            { name: 'http', port: 80 },
            { name: 'http', port: 81 },
          ],
        }),
      ],
    },
    [WEB],
    [/^DuplicatePortName spec\.ports\[1\]\.name: "http"/],
  ],
  'an invalid node port': [
    { services: [service({ ports: [{ name: 'http', port: 80, nodePort: 99_999 }] })] },
    [WEB],
    [/^InvalidPort spec\.ports\[0\]\.nodePort: 99999/],
  ],
  'an invalid cluster IP': [
    { services: [service({ clusterIPs: ['10.96.0.1', 'fd00::xyz'] })] },
    [WEB],
    [/^InvalidClusterIP spec\.clusterIPs: "fd00::xyz"/],
  ],
  'invalid external IPs': [
    { services: [service({ externalIPs: ['1.2.3', '0.0.0.0', '127.0.0.1', 5, '203.0.113.9'] })] },
    [WEB, 'ipv4/203.0.113.9/TCP/80'],
    [/^InvalidExternalIP spec\.externalIPs\[0\]: "1\.2\.3" .*replace or remove it \(and 3 more/],
  ],
  'invalid load balancer addresses': [
    {
      services: [ingress([{ ip: 'x' }, null, { ip: '203.0.113.9', ipMode: 'Magic' }, { ip: '203.0.113.8' }])],
    },
    [WEB, 'ipv4/203.0.113.8/TCP/80'],
    [
      /^InvalidField .*ingress\[1\]/,
      /^InvalidField .*ingress\[2\]\.ipMode: "Magic" .*VIP or Proxy/,
      /^InvalidLoadBalancerIP .*ingress\[0\]\.ip: "x"/,
    ],
  ],
  'invalid source ranges, and a family without any': [
    {
      services: [
        {
          ...ingress([{ ip: '203.0.113.8' }, { ip: '2001:db8::8' }]),
          spec: { ...service({}).spec, loadBalancerSourceRanges: ['10.0.0.0'] },
        },
      ],
    },
    [WEB, 'ipv4/203.0.113.8/TCP/80'],
    [/^InvalidSourceRange .*"10\.0\.0\.0".*10\.0\.0\.0\/8/, /^SourceRangesMissFamily .*::\/0/],
  ],
  'unknown policies and affinity': [
    {
      services: [
        service({
          internalTrafficPolicy: 'local',
          externalTrafficPolicy: 7,
          sessionAffinity: 'Cookie',
        }),
        service(
          {
            clusterIPs: ['10.96.0.2'],
            sessionAffinity: 'ClientIP',
            sessionAffinityConfig: { clientIP: { timeoutSeconds: 90_000 } },
          },
          { name: 'zwei' },
        ),
      ],
    },
    [WEB, 'ipv4/10.96.0.2/TCP/80'],
    [
      /^InvalidField spec\.externalTrafficPolicy: is a number/,
      /^InvalidSessionAffinity spec\.sessionAffinity: "Cookie"/,
      /^InvalidTrafficPolicy spec\.internalTrafficPolicy: "local" .*Cluster or Local/,
      /^InvalidSessionAffinity .*timeoutSeconds: 90000 .*86400/,
    ],
  ],
  'annotations with unknown values': [
    {
      services: [
        service(
          {},
          { annotations: { 'fairlead.dev/ipvs-scheduler': 'best', 'fairlead.dev/failover': true } },
        ),
      ],
    },
    [WEB],
    [
      /^UnknownAnnotationValue metadata\.annotations\[fairlead\.dev\/failover\]: true .*enabled, disabled/,
      /^UnknownAnnotationValue metadata\.annotations\[fairlead\.dev\/ipvs-scheduler\]: "best" .*rr, wrr/,
    ],
  ],
  'fields of a wrong type': [
    { services: [service({ ports: {}, externalIPs: 'all', type: 5 }), { metadata: [], spec: 'x' }, {}] },
    [],
    [
      /^InvalidName metadata: a Service needs a name/,
      /^InvalidField spec\.externalIPs: is a string, must be a list/,
      /^InvalidField spec\.ports: is an object, must be a list/,
      /^InvalidField spec\.type: is a number, must be a string/,
    ],
  ],
  'invalid endpoint addresses': [
    {
      services: [service({})],
      slices: [
        endpoints(
          { addresses: [] },
          { addresses: ['10.244.1'] },
          { addresses: ['fd00::1'] },
          { addresses: ['127.0.0.1'] },
          { addresses: [null] },
          { addresses: '10.1.1.1' },
          null,
          'x',
        ),
      ],
    },
    [WEB],
    [
      /^InvalidEndpointAddress endpoints\[1\]\.addresses\[0\]: "10\.244\.1" .*\(and 3 more/,
      /^InvalidEndpointAddress endpoints\[0\]\.addresses: is empty/,
      /^InvalidField endpoints\[5\]\.addresses: is a string/,
      /^InvalidField endpoints\[6\]: .*\(and 1 more/,
    ],
  ],
  'endpoint conditions, nodes and hints of a wrong type': [
    {
      services: [service({})],
      slices: [
        endpoints({
          addresses: ['10.244.1.5'],
          conditions: { ready: 'yes' },
          nodeName: 5,
          hints: { forZones: ['a'], forNodes: 'b' },
          targetRef: 'pod',
        }),
      ],
    },
    [WEB],
    [
      /^InvalidField endpoints\[0\]\.conditions\.ready: "yes"/,
      /^InvalidField endpoints\[0\]\.hints\.forNodes: is a string/,
      /^InvalidField endpoints\[0\]\.hints\.forZones\[0\]/,
      /^InvalidField endpoints\[0\]\.nodeName: is a number/,
    ],
  ],
  'slice ports without a number, of unknown protocol, or no ports at all': [
    {
      services: [service({})],
      slices: [
        slice({ ports: [{ name: 'http' }, { name: 'x', protocol: 'tcp', port: 1 }, 5] }),
        slice({ name: 'web-2', ports: null }),
      ],
    },
    [WEB],
    [
      /^InvalidEndpointPort ports\[0\]\.port/,
      /^InvalidField ports\[2\]/,
      /^UnknownProtocol ports\[1\]\.protocol: "tcp"/,
    ],
  ],
  'slices of other address types': [
    {
      services: [service({})],
      slices: [
        slice({ addressType: 'FQDN' }),
        slice({ name: 'web-2', addressType: 'MAC' }),
        slice({ name: 'web-3' }),
      ],
    },
    [WEB],
    [/^UnsupportedAddressType addressType: FQDN/, /^UnsupportedAddressType addressType: "MAC"/],
  ],
};

for (const [name, [input, keys, findings]] of Object.entries(rows)) {
  test(`${name}: reported, and the rest is compiled`, () => {
    const map = compile({
      node: testNode(),
      services: (input.services ?? []) as readonly ServiceObject[],
      slices: (input.slices ?? [GOOD]) as readonly EndpointSliceObject[],
    });
    assert.deepEqual([...map.frontends.keys()], keys);
    const texts = texted(map);
    assert.equal(texts.length, findings.length, texts.join('\n'));
    for (const [i, pattern] of findings.entries()) assert.match(texts[i] ?? '', pattern);
  });
}

test('two Services request the same address and port: the older gets it, and the other gets an event', () => {
  const claim = (name: string, creationTimestamp: string, clusterIP: string) =>
    service({ clusterIPs: [clusterIP], externalIPs: ['203.0.113.1'] }, { name, creationTimestamp });
  const young = claim('a-young', '2025-02-01T00:00:00Z', '10.96.0.1');
  const old = claim('z-old', '2025-01-01T00:00:00Z', '10.96.0.2');
  const twin = claim('b-twin', '2025-01-01T00:00:00Z', '10.96.0.3');
  const map = compile({ node: testNode(), services: [young, old, twin], slices: [] });
  assert.equal(map.frontends.get('ipv4/203.0.113.1/TCP/80')?.owner.name, 'b-twin');
  assert.equal(map.frontends.size, 4);
  assert.deepEqual(
    map.findings.map(({ object, reason }) => `${reason} ${object.name}`),
    ['FrontendConflict a-young', 'FrontendConflict z-old'],
  );
  assert.match(
    map.findings[0]?.message ?? '',
    /spec\.externalIPs: 203\.0\.113\.1 port 80\/TCP \(IPv4\) is in use by Service default\/b-twin, which is older/,
  );
});

test('junk in place of objects or any part of them never throws and never affects other objects', () => {
  const labels = { 'kubernetes.io/service-name': 'web' };
  const junk = JUNK.flatMap((value) => [
    value,
    { metadata: value },
    { metadata: { namespace: value, name: 'x', labels } },
    { metadata: { namespace: 'default', name: value, labels } },
    { metadata: { namespace: 'default', name: 'x', labels: value, annotations: value } },
    { metadata: { namespace: 'default', name: 'x', labels: { 'kubernetes.io/service-name': value } } },
    { metadata: { namespace: 'default', name: 'x', labels }, spec: value, status: value },
    {
      metadata: { namespace: 'default', name: 'x', labels },
      addressType: value,
      endpoints: value,
      ports: value,
    },
  ]);
  const map = compile({
    node: testNode(),
    services: [...(junk as readonly ServiceObject[]), service({})],
    slices: [...(junk as readonly EndpointSliceObject[]), GOOD],
  });
  const route = map.frontends.get(WEB)?.routes.pod;
  assert.equal(route?.action === 'forward' && route.pool.endpoints.length, 1);
  for (const { message, reason } of map.findings)
    assert.match(`${reason} ${message}`, /^[A-Z][A-Za-z]+ [a-zA-Z]/);
});

test('5,000 endpoints in one Service', () => {
  const slices = Array.from({ length: 50 }, (_, i) =>
    webSlice(
      Array.from({ length: 100 }, (_, j) => `10.244.${i}.${j + 1} @node-${1 + (j % 3)}`),
      { name: `web-${i}` },
    ),
  );
  const map = compile({ node: testNode(), services: [service({})], slices });
  const route = map.frontends.get(WEB)?.routes.pod;
  assert.equal(route?.action === 'forward' && route.pool.endpoints.length, 5000);
  assert.deepEqual(map.findings, []);
});

function texted(map: ServiceMap): string[] {
  return map.findings.map(({ reason, message }) => `${reason} ${message}`);
}
