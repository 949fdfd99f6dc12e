import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ApiObject } from '../object.ts';
import { objectWarnings } from './warnings.ts';

const container = (more: object = {}) => ({ name: 'c', image: 'i', ...more });
const of = (spec: object, name = 'web', generation = 1) =>
  ({ metadata: { name, generation }, spec }) as unknown as ApiObject;
const pod = (more: object) => of({ containers: [container()], ...more });
const deployment = (more: object, generation = 1) =>
  of({ template: { spec: { containers: [container(more)] } } }, 'web', generation);
const port = { containerPort: 80, protocol: 'TCP' };
const env = (...values: string[]) => ({ env: values.map((value) => ({ name: 'A', value })) });

const annotated = (key: string) =>
  ({
    metadata: { name: 'web', annotations: { [key]: 'x' } },
    spec: { containers: [container()] },
  }) as unknown as ApiObject;
const files = (path: string) => ({ items: [{ key: 'k', path }] });
const projected = (...sources: object[]) => pod({ volumes: [{ name: 'v', projected: { sources } }] });
const preferring = (value: string) => {
  const preference = { matchExpressions: [{ key: 'a', operator: 'In', values: ['ok', value] }] };
  const preferred = [{ weight: 1, preference }];
  return pod({ affinity: { nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: preferred } } });
};
const tls = (data: object) =>
  ({ metadata: { name: 'x' }, type: 'kubernetes.io/tls', data }) as unknown as ApiObject;

const ROWS: readonly [
  what: string,
  collection: string,
  object: ApiObject,
  before: ApiObject | null,
  expected: RegExp | null,
][] = [
  ['an ordinary pod', 'pods', pod({}), null, null],
  [
    'names of a NetworkPolicy that isolates for ingress only',
    'networkpolicies.networking.k8s.io',
    {
      metadata: { name: 'p', annotations: { 'fairlead.dev/egress-names': 'a.example.com' } },
      spec: { podSelector: {}, policyTypes: ['Ingress'] },
    } as unknown as ApiObject,
    null,
    /metadata\.annotations\[fairlead\.dev\/egress-names\]: it has no effect: spec\.policyTypes does not contain Egress/,
  ],
  [
    'files of a projected volume, one below the other',
    'pods',
    projected({ configMap: { name: 'a', ...files('x') } }, { secret: { name: 'b', ...files('x/y') } }),
    null,
    /volume "v" \(Projected\): overlapping paths: "x\/y" \(Secret "b"\) with "x" \(ConfigMap "a"\)/,
  ],
  [
    'a token beside a file of its name',
    'pods',
    projected({ serviceAccountToken: { path: 'x' } }, { configMap: { name: 'a', ...files('x') } }),
    null,
    /"x" \(ConfigMap "a"\) with "x" \(ServiceAccountToken\)/,
  ],
  [
    'files beside each other',
    'pods',
    projected({ configMap: { name: 'a', ...files('x') } }, { secret: { name: 'b', ...files('xy') } }),
    null,
    null,
  ],
  ['a preferred value that no label has', 'pods', preferring('-b'), null, /values\[1\]: -b is invalid/],
  ['a long preferred value', 'pods', preferring('y'.repeat(64)), null, /must be no more than 63 bytes/],
  [
    'an annotation that a field has replaced',
    'pods',
    annotated('scheduler.alpha.kubernetes.io/critical-pod'),
    null,
    /^metadata.annotations\[scheduler.alpha.kubernetes.io\/critical-pod\]: non-functional in v1.16/,
  ],
  [
    'a removed kind of volume',
    'pods',
    pod({ volumes: [{ name: 'v', rbd: {} }] }),
    null,
    /^spec.volumes\[0\].rbd: deprecated in v1.28/,
  ],
  [
    'an IPv6 address in another form',
    'pods',
    pod({ hostAliases: [{ ip: '2001:DB8::1' }] }),
    null,
    /hostAliases\[0\].ip: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format \("2001:db8::1"\)/,
  ],
  ['a certificate without PEM data', 'secrets', tls({ 'tls.crt': 'eA==' }), null, /PEM data in certificate/],
  [
    'the reclaim policy Recycle',
    'persistentvolumes',
    of({ persistentVolumeReclaimPolicy: 'Recycle' }),
    null,
    /Recycle reclaim policy is deprecated/,
  ],
  [
    'part of a byte of a claim',
    'persistentvolumeclaims',
    of({ resources: { requests: { storage: '100m' } } }),
    null,
    /^spec.resources.requests\[storage\]: fractional/,
  ],
  [
    'a Job whose indexes are too many',
    'jobs.batch',
    of({ completionMode: 'Indexed', completions: 200_000, parallelism: 20_000 }),
    null,
    /^spec: In Indexed Jobs/,
  ],
  [
    'a variable that hides another',
    'deployments.apps',
    deployment(env('a', 'b')),
    null,
    /env\[1\]: hides previous/,
  ],
  ['a variable that extends another', 'deployments.apps', deployment(env('a', '$(A)b')), null, null],
  [
    'part of a byte',
    'pods',
    pod({ containers: [container({ resources: { limits: { memory: '1m' } } })] }),
    null,
    /limits\[memory\]: fractional byte value "1m"/,
  ],
  [
    'a port twice',
    'pods',
    pod({ containers: [container({ ports: [port, port] })] }),
    null,
    /ports\[1\]: duplicate port definition with spec.containers\[0\].ports\[0\]/,
  ],
  [
    'an address without a port',
    'pods',
    pod({ containers: [container({ ports: [{ ...port, hostIP: '127.0.0.1' }] })] }),
    null,
    /hostIP set without hostPort/,
  ],
  [
    'an old label',
    'pods',
    pod({ nodeSelector: { 'beta.kubernetes.io/os': 'linux' } }),
    null,
    /spec.nodeSelector\[beta.kubernetes.io\/os\]: deprecated since v1.14/,
  ],
  [
    'no selector',
    'pods',
    pod({ topologySpreadConstraints: [{ topologyKey: 'zone' }] }),
    null,
    /labelSelector: a null labelSelector/,
  ],
  [
    'a secret without a name',
    'pods',
    pod({ imagePullSecrets: [{}] }),
    null,
    /imagePullSecrets\[0\].name: invalid empty name/,
  ],
  [
    'a file twice',
    'pods',
    pod({ volumes: [{ name: 'v', configMap: { name: 'm', items: [{ path: 'a' }, { path: 'a/b' }] } }] }),
    null,
    /volume "v" \(ConfigMap "m"\): overlapping paths: "a\/b" with "a"/,
  ],
  [
    'a name with dots',
    'deployments.apps',
    of({}, 'a.b'),
    null,
    /used in Pod names and hostnames.*\[must not contain dots\]/,
  ],
  ['an update of a pod', 'pods', pod({ imagePullSecrets: [{}] }), pod({}), null],
  ['an update of the status', 'deployments.apps', deployment(env('a', 'b')), deployment(env('a', 'b')), null],
  [
    'an update of the template',
    'deployments.apps',
    deployment(env('a', 'b'), 2),
    deployment({}),
    /hides previous/,
  ],
  [
    'affinity of a headless Service',
    'services',
    of({ type: 'ClusterIP', clusterIP: 'None', sessionAffinity: 'ClientIP' }),
    null,
    /spec.SessionAffinity is ignored/,
  ],
  [
    'the old word of a distribution',
    'services',
    of({ trafficDistribution: 'PreferClose' }),
    null,
    /use "PreferSameZone"/,
  ],
  [
    'an ordinary Service',
    'services',
    of({ type: 'ClusterIP', clusterIP: '10.0.0.1', sessionAffinity: 'None' }),
    null,
    null,
  ],
];

describe('warnings', () => {
  for (const [what, collection, object, before, expected] of ROWS) {
    test(what, () => {
      const warnings = objectWarnings(collection, object, before);
      if (expected === null) assert.deepEqual(warnings, []);
      else {
        assert.equal(warnings.length, 1, warnings.join('; '));
        assert.match(warnings[0] ?? '', expected);
      }
    });
  }
});
