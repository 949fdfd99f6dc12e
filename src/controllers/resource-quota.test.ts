import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PersistentVolumeClaim, Pod, ResourceQuota } from '../kube/types.ts';
import { type KindObjects, quotaStatus } from './resource-quota.ts';
import { pod } from './testing/objects.ts';

type Spec = NonNullable<ResourceQuota['spec']>;
const sized = (name: string, cpu: string, fields: { phase?: string; deadline?: number } = {}): Pod =>
  pod(name, {
    phase: fields.phase ?? 'Running',
    spec: {
      containers: [{ name: 'main', image: 'host', resources: { requests: { cpu }, limits: { cpu } } }],
      ...(fields.deadline === undefined ? {} : { activeDeadlineSeconds: fields.deadline }),
    },
  });
const pods = (...objects: Pod[]): KindObjects => ({ group: '', plural: 'pods', objects });
const service = (type: string, ports: number) => ({
  metadata: { name: 's' },
  spec: { type, ports: Array.from({ length: ports }, (_, i) => ({ port: i + 1 })) },
});
const others = (group: string, plural: string, count: number): KindObjects => ({
  group,
  plural,
  objects: Array.from({ length: count }, () => ({ metadata: { name: 'x' } })),
});

const claims = (...objects: PersistentVolumeClaim[]): KindObjects => ({
  group: '',
  plural: 'persistentvolumeclaims',
  objects: objects.map((claim, i) => ({ metadata: { name: `claim-${i}` }, ...claim })),
});
const inClasses = (...values: string[]) => ({
  scopeName: 'VolumeAttributesClass',
  operator: 'In',
  values,
});

const devices = (name: string) => `${name}.deviceclass.resource.k8s.io/devices`;
const deviceClaim = (request: object) => ({
  metadata: { name: 'claim' },
  spec: { devices: { requests: [{ name: 'r', ...request }] } },
});

const ROWS: readonly [name: string, spec: Spec, kinds: KindObjects[], used: Record<string, string>][] = [
  ['an empty namespace uses nothing', { hard: { pods: '5' } }, [], { pods: '0' }],
  [
    'pods are summed',
    { hard: { pods: '5', cpu: '2', 'requests.cpu': '2', 'limits.cpu': '4' } },
    [pods(sized('a', '500m'), sized('b', '1'))],
    { pods: '2', cpu: '1500m', 'requests.cpu': '1500m', 'limits.cpu': '1500m' },
  ],
  [
    'pods that have ended count as objects only',
    { hard: { pods: '5', cpu: '2', 'count/pods': '9' } },
    [pods(sized('a', '500m'), sized('b', '1', { phase: 'Failed' }))],
    { pods: '1', cpu: '500m', 'count/pods': '2' },
  ],
  [
    'a scope counts only its pods',
    { hard: { pods: '5' }, scopes: ['Terminating'] },
    [pods(sized('a', '1'), sized('b', '1', { deadline: 60 }))],
    { pods: '1' },
  ],
  [
    'a scope of classes counts a claim that requests one of them, has it, or is being changed to it',
    { hard: { persistentvolumeclaims: '9' }, scopeSelector: { matchExpressions: [inClasses('gold')] } },
    [
      claims(
        { spec: { volumeAttributesClassName: 'gold' } },
        {
          spec: { volumeAttributesClassName: 'silver' },
          status: { currentVolumeAttributesClassName: 'gold' },
        },
        {
          spec: { volumeAttributesClassName: 'silver' },
          status: { modifyVolumeStatus: { targetVolumeAttributesClassName: 'gold', status: 'InProgress' } },
        },
        { spec: { volumeAttributesClassName: 'silver' } },
        { spec: {} },
      ),
    ],
    { persistentvolumeclaims: '3' },
  ],
  [
    'devices are counted by their class; of alternatives, the most of each class',
    { hard: { 'count/resourceclaims.resource.k8s.io': '9', [devices('gold')]: '9', [devices('all')]: '99' } },
    [
      {
        group: 'resource.k8s.io',
        plural: 'resourceclaims',
        objects: [
          deviceClaim({ exactly: { deviceClassName: 'gold', allocationMode: 'ExactCount', count: 2 } }),
          deviceClaim({
            firstAvailable: [
              { deviceClassName: 'gold', allocationMode: 'ExactCount', count: 1 },
              { deviceClassName: 'gold', allocationMode: 'ExactCount', count: 3 },
              { deviceClassName: 'other', count: 4 },
            ],
          }),
          deviceClaim({ exactly: { deviceClassName: 'all', allocationMode: 'All' } }),
        ],
      },
    ],
    { 'count/resourceclaims.resource.k8s.io': '3', [devices('gold')]: '5', [devices('all')]: '32' },
  ],
  [
    'services count by their type',
    { hard: { services: '5', 'services.nodeports': '5', 'services.loadbalancers': '1' } },
    [{ group: '', plural: 'services', objects: [service('NodePort', 2), service('LoadBalancer', 1)] }],
    { services: '2', 'services.nodeports': '3', 'services.loadbalancers': '1' },
  ],
  [
    'objects of any kind are counted by their names',
    { hard: { secrets: '5', 'count/deployments.apps': '3', 'count/widgets.example.org': '2' } },
    [others('', 'secrets', 2), others('apps', 'deployments', 1), others('example.org', 'widgets', 2)],
    { secrets: '2', 'count/deployments.apps': '1', 'count/widgets.example.org': '2' },
  ],
];
for (const [name, spec, kinds, used] of ROWS) {
  test(`the status of a quota: ${name}`, () => {
    const status = quotaStatus({ metadata: { name: 'q' }, spec }, kinds);
    assert.deepEqual(status, { hard: spec.hard, used });
  });
}
