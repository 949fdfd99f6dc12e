import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { unsupportedFields, unsupportedInContainer } from './supported-fields.ts';

const refused = (spec: object) => unsupportedFields({ spec } as unknown as Pod);
const withContainer = (fields: object) => ({ containers: [{ name: 'main', image: 'host', ...fields }] });

describe('refused by name', () => {
  for (const [path, spec] of [
    ['spec.shareProcessNamespace', { shareProcessNamespace: true }],
    ['spec.runtimeClassName', { runtimeClassName: 'gvisor' }],
    ['spec.resourceClaims', { resourceClaims: [{ name: 'gpu' }] }],
    ['spec.resources', { resources: { limits: { cpu: 1 } } }],
    ['spec.hostUsers=false', { hostUsers: false }],
    ['spec.os.name=windows', { os: { name: 'windows' } }],
    ['spec.securityContext.seLinuxOptions', { securityContext: { seLinuxOptions: { level: 's0' } } }],
    [
      'spec.securityContext.seccompProfile.type=Localhost',
      { securityContext: { seccompProfile: { type: 'Localhost' } } },
    ],
    [
      'spec.containers[0].securityContext.appArmorProfile.type=RuntimeDefault',
      withContainer({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } }),
    ],
    [
      'spec.securityContext.sysctls[1].name=kernel.panic',
      {
        securityContext: {
          sysctls: [
            { name: 'net.a', value: '1' },
            { name: 'kernel.panic', value: '1' },
          ],
        },
      },
    ],
    [
      'spec.securityContext.sysctls[0].name=net.core.somaxconn',
      { hostNetwork: true, securityContext: { sysctls: [{ name: 'net.core.somaxconn', value: '1' }] } },
    ],
    ['spec.volumes[0].nfs', { volumes: [{ name: 'v', nfs: { server: 'x', path: '/' } }] }],
    ['spec.volumes[0].nfs', { volumes: [{ name: 'v', nfs: { server: 's', path: '/' } }] }],
    [
      'spec.volumes[0].emptyDir.medium=HugePages',
      { volumes: [{ name: 'v', emptyDir: { medium: 'HugePages' } }] },
    ],
    [
      'spec.volumes[0].projected.sources[0].clusterTrustBundle',
      { volumes: [{ name: 'v', projected: { sources: [{ clusterTrustBundle: { path: 'x' } }] } }] },
    ],
    ['spec.containers[0].volumeDevices', withContainer({ volumeDevices: [{ name: 'd', devicePath: '/d' }] })],
    ['spec.containers[0].resizePolicy', withContainer({ resizePolicy: [{ resourceName: 'cpu' }] })],
    ['spec.containers[0].restartPolicy', withContainer({ restartPolicy: 'Always' })],
    ['spec.containers[0].resources.claims', withContainer({ resources: { claims: [{ name: 'gpu' }] } })],
    [
      'spec.containers[0].resources.limits.nvidia.com/gpu',
      withContainer({ resources: { limits: { cpu: '1', 'nvidia.com/gpu': '1' } } }),
    ],
    [
      'spec.containers[0].env[0].valueFrom.fileKeyRef',
      withContainer({ env: [{ name: 'A', valueFrom: { fileKeyRef: { path: 'x' } } }] }),
    ],
    [
      'spec.containers[0].securityContext.windowsOptions',
      withContainer({ securityContext: { windowsOptions: { hostProcess: true } } }),
    ],
    ['spec.containers[0].livenessProbe.future', withContainer({ livenessProbe: { future: 1 } })],
    [
      'spec.initContainers[0].restartPolicy=Never',
      { initContainers: [{ name: 'i', restartPolicy: 'Never' }] },
    ],
  ] as const) {
    test(path, () => assert.deepEqual(refused(spec), [path]));
  }
  test('all of them at once', () => {
    assert.deepEqual(refused({ runtimeClassName: 'x', resourceClaims: [{ name: 'y' }] }), [
      'spec.runtimeClassName',
      'spec.resourceClaims',
    ]);
  });
  test('in an ephemeral container, by its own field', () => {
    assert.deepEqual(unsupportedInContainer({ name: 'e', livenessProbe: { exec: {} } }), ['livenessProbe']);
    assert.deepEqual(unsupportedInContainer({ name: 'e', targetContainerName: 'main' }), []);
  });
});

describe('not refused', () => {
  for (const [what, spec] of [
    ['what says nothing', { shareProcessNamespace: false, runtimeClassName: '', resourceClaims: [] }],
    [
      'an ephemeral container: it is refused itself',
      { ephemeralContainers: [{ name: 'e', livenessProbe: {} }] },
    ],
    ['os linux', { os: { name: 'linux' } }],
    ['the host’s users', { hostUsers: true }],
    ['no profile', { securityContext: { seccompProfile: { type: 'Unconfined' } } }],
    ['the default profile', { securityContext: { seccompProfile: { type: 'RuntimeDefault' } } }],
    ['the pod’s own sysctls', { securityContext: { sysctls: [{ name: 'kernel.shmmax', value: '1' }] } }],
    ['a sidecar', { initContainers: [{ name: 's', restartPolicy: 'Always' }] }],
    [
      'hooks and their signal',
      withContainer({ lifecycle: { stopSignal: 'SIGINT', preStop: { sleep: { seconds: 1 } } } }),
    ],
    ['any request', withContainer({ resources: { requests: { cpu: 1, 'example.com/thing': 1 } } })],
  ] as const) {
    test(what, () => assert.deepEqual(refused(spec), []));
  }
});
