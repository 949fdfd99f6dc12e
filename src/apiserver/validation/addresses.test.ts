import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { addressProblem, addressWarnings, rangeProblem, rangeWarnings } from './addresses.ts';
import { validateEndpointSlice, validateEndpoints } from './endpoints.ts';
import { addressNameProblem, validateNetworkPolicy, validateServiceCidr } from './network.ts';
import { validateNode } from './plain.ts';
import { validateService } from './service.ts';
import { statusWarnings, validateStatus } from './statuses.ts';

const NO_ADDRESS = /^must be a valid IP address/;
const NO_RANGE = /^must be a valid CIDR value/;

describe('addresses', () => {
  for (const [text, problem, warning] of [
    ['10.1.2.3', null, null],
    ['fd00::1', null, null],
    ['FD00:0::1', null, /IPv6 address "FD00:0::1" should be in RFC 5952 canonical format \("fd00::1"\)/],
    [
      '010.1.2.3',
      /^must not have leading 0s$/,
      /non-standard IP address "010.1.2.3" is invalid: use "10.1.2.3"/,
    ],
    ['::ffff:10.1.2.3', /^must not be an IPv4-mapped IPv6 address$/, /is invalid: use "10.1.2.3"/],
    [' 10.1.2.3', NO_ADDRESS, null],
    ['fe80::1%eth0', NO_ADDRESS, null],
    ['', NO_ADDRESS, null],
  ] as const) {
    test(`${JSON.stringify(text)}: ${problem ?? 'accepted'}`, () => {
      check(addressProblem(text), problem);
      check(addressWarnings(text, 'f')[0] ?? null, warning);
    });
  }
});

describe('ranges', () => {
  for (const [text, problem, warning] of [
    ['10.0.0.0/8', null, null],
    ['FD00:0::/32', null, /IPv6 CIDR value "FD00:0::\/32" should be in RFC 5952 .* \("fd00::\/32"\)/],
    ['010.0.0.0/8', /^must not have leading 0s in IP or prefix length$/, /is invalid: use "10.0.0.0\/8"/],
    ['10.0.0.0/08', /^must not have leading 0s in IP or prefix length$/, /is invalid: use "10.0.0.0\/8"/],
    [
      '10.1.2.3/8',
      /^must not have bits set beyond the prefix length$/,
      /ambiguous in this context \(should be "10.0.0.0\/8" or "10.1.2.3\/32"\?\)/,
    ],
    ['fd00::1/64', /^must not have bits set beyond/, /\("?should be "fd00::\/64" or "fd00::1\/128"\?\)/],
    ['::ffff:10.0.0.0/104', /^must not have an IPv4-mapped IPv6 address$/, /is invalid: use "10.0.0.0\/8"/],
    [' 10.0.0.0/8', NO_RANGE, null],
    ['10.0.0.0/33', NO_RANGE, null],
    ['10.0.0.0', NO_RANGE, null],
  ] as const) {
    test(`${JSON.stringify(text)}: ${problem ?? 'accepted'}`, () => {
      check(rangeProblem(text), problem);
      check(rangeWarnings(text, 'f')[0] ?? null, warning);
    });
  }
});

function check(text: string | null, expected: RegExp | null): void {
  if (expected === null) assert.equal(text, null);
  else assert.match(text ?? '', expected);
}

const object = (kind: string, fields: object) => ({
  apiVersion: 'v1',
  kind,
  metadata: { name: 'x' },
  ...fields,
});
const MAPPED = '::ffff:10.0.0.1';
const BITS = '10.0.0.1/8';
const policy = (cidr: string, ...except: string[]) =>
  object('NetworkPolicy', {
    spec: { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr, except } }] }] },
  });
const balanced = (fields: object, metadata: object = {}) => {
  const service = object('Service', {
    spec: {
      type: 'LoadBalancer',
      externalTrafficPolicy: 'Cluster',
      sessionAffinity: 'None',
      ports: [{ port: 80, protocol: 'TCP', targetPort: 80 }],
      ...fields,
    },
  });
  return { ...service, metadata: { ...service.metadata, ...metadata } };
};
const slice = (addressType: string, address: string) =>
  object('EndpointSlice', { addressType, endpoints: [{ addresses: [address] }], ports: [] });
const endpoints = (ip: string) => object('Endpoints', { subsets: [{ addresses: [{ ip }] }] });
const SOURCES = 'service.beta.kubernetes.io/load-balancer-source-ranges';

/** Fields that refuse an ambiguous address or range, by their path. */
const REFUSED: readonly (readonly [path: string, errors: readonly { readonly field: string }[]])[] = [
  ['spec.ingress[0].from[0].ipBlock.cidr', validateNetworkPolicy(policy(BITS), null)],
  ['spec.ingress[0].from[0].ipBlock.except[0]', validateNetworkPolicy(policy('0.0.0.0/0', BITS), null)],
  ['spec.podCIDRs[0]', validateNode(object('Node', { spec: { podCIDRs: [BITS] } }), null)],
  ['spec.cidrs[0]', validateServiceCidr(object('ServiceCIDR', { spec: { cidrs: [BITS] } }), null)],
  ['spec.externalIPs[0]', validateService(balanced({ externalIPs: [MAPPED] }), null)],
  ['spec.LoadBalancerSourceRanges[0]', validateService(balanced({ loadBalancerSourceRanges: [BITS] }), null)],
  [
    `metadata.annotations[${SOURCES}]`,
    validateService(balanced({}, { annotations: { [SOURCES]: `10.0.0.0/8, ${BITS}` } }), null),
  ],
  ['endpoints[0].addresses[0]', validateEndpointSlice(slice('IPv4', MAPPED), null)],
  ['endpoints[0].addresses[0]', validateEndpointSlice(slice('IPv6', 'FD00::1'), null)],
  ['endpoints[0].addresses', validateEndpointSlice(slice('IPv4', 'FD00::1'), null)],
  ['subsets[0].addresses[0].ip', validateEndpoints(endpoints(MAPPED), null)],
];
for (const [path, errors] of REFUSED) {
  test(`${path} is refused`, () =>
    assert.deepEqual(
      errors.map(({ field }) => field),
      [path],
    ));
}

test('an update keeps what the object has', () => {
  const changed = (one: object) => ({ ...one, metadata: { name: 'x', labels: { a: 'b' } } }) as never;
  assert.deepEqual(validateNetworkPolicy(changed(policy(BITS)), policy(BITS)), []);
  assert.deepEqual(validateEndpoints(changed(endpoints(MAPPED)), endpoints(MAPPED)), []);
  const service = balanced({ externalIPs: [MAPPED], loadBalancerSourceRanges: [BITS] });
  assert.deepEqual(validateService(changed(service), service), []);
});

test('an IPAddress is named by the canonical form', () => {
  assert.equal(addressNameProblem('fd00::1'), null);
  assert.equal(addressNameProblem('FD00::1'), 'must be in canonical form ("fd00::1")');
});

const KIND = (collection: string) => ({ collection }) as never;
const point = (type: string, fields: object) => ({
  ...object('Service', { spec: { type } }),
  status: { loadBalancer: { ingress: [fields] } },
});
const pod = (status: object) => object('Pod', { status });
const STATUSES: readonly (readonly [what: string, collection: string, object: object, fields: string[]])[] = [
  ['an address', 'services', point('LoadBalancer', { ip: '10.0.0.1', ipMode: 'VIP' }), []],
  [
    'a mapped address',
    'services',
    point('LoadBalancer', { ip: MAPPED }),
    ['status.loadBalancer.ingress[0].ip'],
  ],
  [
    'an address of no load balancer',
    'services',
    point('NodePort', { ip: '10.0.0.1' }),
    ['status.loadBalancer.ingress'],
  ],
  ['a host name', 'services', point('LoadBalancer', { hostname: 'a.b' }), []],
  [
    'an address as a host name',
    'services',
    point('LoadBalancer', { hostname: '10.0.0.1' }),
    ['status.loadBalancer.ingress[0].hostname'],
  ],
  [
    'an unknown mode',
    'services',
    point('LoadBalancer', { ip: '10.0.0.1', ipMode: 'x' }),
    ['status.loadBalancer.ingress[0].ipMode'],
  ],
  [
    'a mode without address',
    'services',
    point('LoadBalancer', { hostname: 'a', ipMode: 'VIP' }),
    ['status.loadBalancer.ingress[0].ipMode'],
  ],
  [
    'an Ingress',
    'ingresses.networking.k8s.io',
    point('', { ip: 'x' }),
    ['status.loadBalancer.ingress[0].ip'],
  ],
  ['both families', 'pods', pod({ podIP: '10.0.0.1', podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }] }), []],
  [
    'two of one family',
    'pods',
    pod({ podIP: '10.0.0.1', podIPs: [{ ip: '10.0.0.1' }, { ip: '10.0.0.2' }] }),
    ['status.podIPs'],
  ],
  ['podIP alone', 'pods', pod({ podIP: 'x' }), ['status.podIPs[0]']],
  [
    'another host address',
    'pods',
    pod({ hostIP: '10.0.0.2', hostIPs: [{ ip: '10.0.0.1' }] }),
    ['status.hostIPs[0].ip'],
  ],
  ['no address yet', 'pods', pod({ phase: 'Pending' }), []],
];
describe('statuses', () => {
  for (const [what, collection, changed, fields] of STATUSES) {
    test(`${collection}: ${what}`, () => {
      const before = object('x', {});
      const errors = validateStatus(KIND(collection), changed as never, before);
      assert.deepEqual(
        errors.map(({ field }) => field),
        fields,
      );
      // Addresses that were there before are kept.
      const again = validateStatus(KIND(collection), changed as never, changed as never);
      assert.ok(again.length <= errors.length);
    });
  }
  test('another form of an address is warned of', () => {
    assert.deepEqual(statusWarnings('services', point('LoadBalancer', { ip: 'FD00::1' })), [
      'status.loadBalancer.ingress[0]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")',
    ]);
  });
});
