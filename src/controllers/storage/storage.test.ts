import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type {
  OwnerReference,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  StatefulSet,
  StorageClass,
} from '../../kube/types.ts';
import { node, pod } from '../testing/objects.ts';
import { boundStatus, boundVolume, stepOfClaim, stepOfVolume, unboundVolume } from './binding.ts';
import { BIND_COMPLETED, PROVISIONED_BY, SELECTED_NODE } from './claims.ts';
import { missingClaims } from './pod-claims.ts';
import { LOCAL_PATH, localVolume } from './provisioning.ts';
import { claimOwners, claimsAt, withClaimVolumes } from './stateful-claims.ts';
import { findVolume } from './volume-match.ts';
import { exclusiveRefusal, podVolumes, type VolumeSources, volumesOn } from './volume-scheduling.ts';

type ClaimSpec = NonNullable<PersistentVolumeClaim['spec']>;
type VolumeSpec = NonNullable<PersistentVolume['spec']>;

const claim = (
  spec: ClaimSpec = {},
  annotations: Record<string, string> = {},
  phase = 'Pending',
): PersistentVolumeClaim => ({
  metadata: { name: 'data', namespace: 'default', uid: 'uid of data', annotations },
  spec: {
    accessModes: ['ReadWriteOnce'],
    resources: { requests: { storage: '1Gi' } },
    storageClassName: '',
    ...spec,
  },
  status: { phase },
});
const volume = (name: string, spec: VolumeSpec = {}, phase = 'Available', labels = {}): PersistentVolume => ({
  metadata: { name, uid: name, labels },
  spec: { capacity: { storage: '2Gi' }, accessModes: ['ReadWriteOnce'], hostPath: { path: '/x' }, ...spec },
  status: { phase },
});
const reference = (name: string, uid?: string) => ({
  claimRef: { namespace: 'default', name, ...(uid ? { uid } : {}) },
});
const onNode = (host: string): VolumeSpec => ({
  nodeAffinity: {
    required: {
      nodeSelectorTerms: [
        { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [host] }] },
      ],
    },
  },
});
const storageClass = (fields: Partial<StorageClass> = {}): StorageClass => ({
  metadata: { name: 'standard' },
  provisioner: LOCAL_PATH,
  volumeBindingMode: 'WaitForFirstConsumer',
  ...fields,
});

const MATCHES: readonly [
  name: string,
  claim: PersistentVolumeClaim,
  volumes: PersistentVolume[],
  found: string | null,
][] = [
  [
    'the smallest that is large enough',
    claim(),
    [
      volume('a', { capacity: { storage: '9Gi' } }),
      volume('b'),
      volume('c', { capacity: { storage: '1Mi' } }),
    ],
    'b',
  ],
  ['one that is reserved by name', claim(), [volume('a'), volume('b', reference('data'))], 'b'],
  ['none that is reserved for another', claim(), [volume('a', reference('other'))], null],
  ['none that is not available', claim(), [volume('a', {}, 'Released')], null],
  ['none with fewer access modes', claim({ accessModes: ['ReadWriteMany'] }), [volume('a')], null],
  ['none of another class', claim({ storageClassName: 'fast' }), [volume('a')], null],
  ['none of another volume mode', claim({ volumeMode: 'Block' }), [volume('a')], null],
  [
    'only one that the selector matches',
    claim({ selector: { matchLabels: { tier: 'gold' } } }),
    [volume('a'), volume('b', {}, 'Available', { tier: 'gold' })],
    'b',
  ],
];
describe('the volume for a claim', () => {
  for (const [name, object, volumes, found] of MATCHES) {
    test(name, () => assert.equal(findVolume(object, volumes)?.metadata?.name ?? null, found));
  }
});

const bound = { [BIND_COMPLETED]: 'yes' };
const CLAIMS: readonly [
  name: string,
  claim: PersistentVolumeClaim,
  volumes: PersistentVolume[],
  StorageClass | undefined,
  step: string,
][] = [
  ['is bound to a matching volume', claim(), [volume('a')], undefined, 'bind a'],
  ['without class and volume waits', claim(), [], undefined, 'wait FailedBinding'],
  ['of an unknown class waits', claim({ storageClassName: 'x' }), [], undefined, 'wait ProvisioningFailed'],
  [
    'waits for its first pod',
    claim({ storageClassName: 'standard' }),
    [volume('a', { storageClassName: 'standard' })],
    storageClass(),
    'wait WaitForFirstConsumer',
  ],
  [
    'is provisioned once the pod has a node',
    claim({ storageClassName: 'standard' }, { [SELECTED_NODE]: 'a' }),
    [],
    storageClass(),
    'provision',
  ],
  [
    'is provisioned immediately with Immediate',
    claim({ storageClassName: 'standard' }),
    [],
    storageClass({ volumeBindingMode: 'Immediate' }),
    'provision',
  ],
  [
    'is bound to the volume that it names',
    claim({ volumeName: 'b' }),
    [volume('a'), volume('b')],
    undefined,
    'bind b',
  ],
  [
    'waits for the volume that it names',
    claim({ volumeName: 'b' }),
    [volume('a')],
    undefined,
    'wait FailedBinding',
  ],
  [
    'is not bound to a named volume that is too small',
    claim({ volumeName: 'a' }),
    [volume('a', { capacity: { storage: '1Ki' } })],
    undefined,
    'wait VolumeMismatch',
  ],
  [
    'is bound to a volume of another class that names it, too',
    claim({ volumeName: 'a', storageClassName: 'standard' }),
    [volume('a', reference('data'))],
    storageClass({ volumeBindingMode: 'WaitForFirstConsumer' }),
    'bind a',
  ],
  ['is lost with its volume', claim({ volumeName: 'a' }, bound), [], undefined, 'lose ClaimLost'],
  [
    'is lost if its volume is bound to another claim',
    claim({ volumeName: 'a' }, bound),
    [volume('a', reference('other', 'x'))],
    undefined,
    'lose ClaimMisbound',
  ],
];
describe('a claim', () => {
  for (const [name, object, volumes, ofClass, expected] of CLAIMS) {
    test(name, () => {
      const step = stepOfClaim({ claim: object, volumes, storageClass: ofClass });
      const detail =
        step.step === 'bind' ? ` ${step.volume.metadata?.name}` : 'reason' in step ? ` ${step.reason}` : '';
      assert.equal(`${step.step}${detail}`, expected);
    });
  }
});

const VOLUMES: readonly [
  name: string,
  volume: PersistentVolume,
  claim: PersistentVolumeClaim | undefined,
  step: string,
][] = [
  ['without a claim is available', volume('a'), undefined, 'phase Available'],
  ['that is reserved by name is available', volume('a', reference('data')), undefined, 'phase Available'],
  [
    'of a claim that is bound to it is bound',
    volume('a', reference('data', 'uid of data')),
    claim({ volumeName: 'a' }),
    'phase Bound',
  ],
  ['whose claim is gone is released', volume('a', reference('data', 'uid of data')), undefined, 'release'],
  [
    'whose claim is bound to another volume is free again',
    volume('a', reference('data', 'uid of data')),
    claim({ volumeName: 'b' }),
    'unbind',
  ],
];
describe('a volume', () => {
  for (const [name, object, ofClaim, expected] of VOLUMES) {
    test(name, () => {
      const step = stepOfVolume({ volume: object, claim: ofClaim });
      assert.equal(step.step === 'phase' ? `phase ${step.phase}` : step.step, expected);
    });
  }
  test('that was selected for a claim is free for others afterwards', () => {
    const free = unboundVolume(boundVolume(volume('a'), claim()));
    assert.equal(free.spec?.claimRef, undefined);
  });
  test('that a user reserved remains reserved', () => {
    const free = unboundVolume(boundVolume(volume('a', reference('data')), claim()));
    assert.deepEqual([free.spec?.claimRef?.name, free.spec?.claimRef?.uid], ['data', undefined]);
  });
});

describe('the local-path provisioner', () => {
  const made = (accessModes: string[]) =>
    localVolume(claim({ accessModes }), storageClass(), node('a'), (name) => `/volumes/${name}`);
  test('provisions a volume that belongs to the node', () => {
    const { metadata, spec } = made(['ReadWriteOnce']);
    assert.equal(metadata?.annotations?.[PROVISIONED_BY], LOCAL_PATH);
    assert.equal(spec?.local?.path, '/volumes/pvc-uid of data');
    assert.equal(spec?.nodeAffinity?.required?.nodeSelectorTerms[0]?.matchExpressions?.[0]?.values?.[0], 'a');
  });
  test('provisions a volume for pods of all nodes if the claim requests it', () => {
    const { spec } = made(['ReadWriteMany']);
    assert.equal(spec?.hostPath?.path, '/volumes/pvc-uid of data');
    assert.equal(spec?.nodeAffinity, undefined);
  });
});

describe('the node for a pod with volumes', () => {
  const user = (name = 'p'): Pod =>
    pod(name, { spec: { volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'data' } }] } });
  const sources = (
    object: PersistentVolumeClaim | undefined,
    volumes: PersistentVolume[],
    ofClass = storageClass(),
  ): VolumeSources => ({
    claim: () => object,
    volume: (name) => volumes.find(({ metadata }) => metadata?.name === name),
    volumes: () => volumes,
    storageClass: (name) => (name === 'standard' ? ofClass : undefined),
    reserved: new Set(),
  });
  const boundTo = (name: string) => claim({ volumeName: name }, bound, 'Bound');
  const rows: readonly [name: string, sources: VolumeSources, result: string][] = [
    ['needs the claim', sources(undefined, []), 'persistentvolumeclaim "data" not found'],
    [
      'needs an immediate claim to be bound',
      sources(claim(), []),
      'pod has unbound immediate PersistentVolumeClaims',
    ],
    ['is that of a bound volume', sources(boundTo('v'), [volume('v', onNode('a'))]), 'a'],
    [
      'is only that of a bound volume',
      sources(boundTo('v'), [volume('v', onNode('b'))]),
      "node(s) didn't match PersistentVolume's node affinity",
    ],
    [
      'is one with a free volume',
      sources(
        claim({ storageClassName: 'standard' }),
        [volume('v', { ...onNode('a'), storageClassName: 'standard' })],
        storageClass({ provisioner: 'kubernetes.io/no-provisioner' }),
      ),
      'binds v',
    ],
    [
      'does not exist without a volume or a provisioner',
      sources(
        claim({ storageClassName: 'standard' }),
        [],
        storageClass({ provisioner: 'kubernetes.io/no-provisioner' }),
      ),
      "node(s) didn't find available persistent volumes to bind",
    ],
    [
      'is any on which a volume can be provisioned',
      sources(claim({ storageClassName: 'standard' }), []),
      'provisions data',
    ],
    [
      'is the one that was selected before',
      sources(claim({ storageClassName: 'standard' }, { [SELECTED_NODE]: 'b' }), []),
      "node(s) didn't find available persistent volumes to bind",
    ],
  ];
  for (const [name, from, expected] of rows) {
    test(name, () => {
      const needs = podVolumes(user(), from);
      const on = volumesOn(needs, node('a'), from);
      const result =
        needs.problem ??
        ('refusal' in on
          ? on.refusal
          : on.bindings.length > 0
            ? `binds ${on.bindings[0]?.volume.metadata?.name}`
            : on.provision.length > 0
              ? `provisions ${on.provision[0]?.metadata?.name}`
              : 'a');
      assert.equal(result, expected);
    });
  }
  test('does not exist while another pod has a claim that only one pod may use', () => {
    const needs = podVolumes(
      user(),
      sources(claim({ accessModes: ['ReadWriteOncePod'] }, bound, 'Bound'), []),
    );
    const refusal = (pods: Pod[]) =>
      exclusiveRefusal(user(), { ...needs, exclusive: ['data'] }, [{ node: node('a'), pods }]);
    assert.equal(refusal([]), null);
    assert.match(refusal([user('other')]) ?? '', /ReadWriteOncePod/);
  });
});

test('the claims of ephemeral volumes are created once, and belong to the pod', () => {
  const volumes = [
    { name: 'scratch', ephemeral: { volumeClaimTemplate: { spec: { storageClassName: 'x' } } } },
  ];
  const [made] = missingClaims(pod('p', { spec: { volumes } }), new Set());
  assert.equal(made?.metadata?.name, 'p-scratch');
  assert.equal(made?.metadata?.ownerReferences?.[0]?.uid, 'uid of p');
  assert.deepEqual(missingClaims(pod('p', { spec: { volumes } }), new Set(['p-scratch'])), []);
});

test('a bound claim has the VolumeAttributesClass of its volume', () => {
  const status = (spec: VolumeSpec) => boundStatus({ spec: { accessModes: ['ReadWriteOnce'], ...spec } });
  assert.equal(status({ volumeAttributesClassName: 'gold' }).currentVolumeAttributesClassName, 'gold');
  assert.ok(!('currentVolumeAttributesClassName' in status({})));
});

describe('the claims of a StatefulSet', () => {
  const set = (whenDeleted = 'Retain', whenScaled = 'Retain'): StatefulSet => ({
    metadata: { name: 'db', namespace: 'default', uid: 'db' },
    spec: {
      selector: { matchLabels: { app: 'db' } },
      serviceName: 'db',
      template: {},
      volumeClaimTemplates: [{ metadata: { name: 'data' }, spec: { storageClassName: 'standard' } }],
      persistentVolumeClaimRetentionPolicy: { whenDeleted, whenScaled },
    },
  });
  test('are named by template, set and ordinal, and mounted in place of other volumes', () => {
    assert.deepEqual(
      claimsAt(set(), 2).map(({ metadata }) => metadata?.name),
      ['data-db-2'],
    );
    const mounted = withClaimVolumes(
      set(),
      2,
      pod('db-2', { spec: { volumes: [{ name: 'data', emptyDir: {} }] } }),
    );
    assert.deepEqual(mounted.spec?.volumes, [
      { name: 'data', persistentVolumeClaim: { claimName: 'data-db-2' } },
    ]);
  });
  const OWNERS: readonly [
    whenDeleted: string,
    whenScaled: string,
    scaledAway: boolean,
    owners: string | null,
  ][] = [
    ['Retain', 'Retain', false, null],
    ['Delete', 'Retain', false, 'db'],
    ['Delete', 'Retain', true, 'db'],
    ['Retain', 'Delete', true, 'uid of db-1'],
    ['Retain', 'Delete', false, null],
    ['Delete', 'Delete', true, 'uid of db-1'],
  ];
  for (const [whenDeleted, whenScaled, scaledAway, expected] of OWNERS) {
    test(`${scaledAway ? 'scaled away' : 'in use'} with whenDeleted ${whenDeleted}, whenScaled ${whenScaled}`, () => {
      const owners = claimOwners(set(whenDeleted, whenScaled), claim(), pod('db-1'), scaledAway);
      assert.equal(owners?.map(({ uid }) => uid).join() ?? null, expected);
    });
  }
  test('belong to the set as their controller, beside other owners', () => {
    const owned = (...ownerReferences: OwnerReference[]) => {
      const bare = claim();
      return { ...bare, metadata: { ...bare.metadata, ownerReferences } };
    };
    const ofSet = {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      name: 'db',
      uid: 'db',
      blockOwnerDeletion: true,
    };
    const other = { apiVersion: 'v1', kind: 'ConfigMap', name: 'other', uid: 'other' };
    const after = (before: PersistentVolumeClaim) => claimOwners(set('Delete'), before, pod('db-1'), false);
    const isController = { ...ofSet, controller: true };
    assert.deepEqual(after(owned({ ...ofSet, controller: false }, other)), [other, isController]);
    assert.equal(after(owned(other, isController)), null);
    assert.equal(after(owned({ ...other, controller: true })), null);
  });
});
