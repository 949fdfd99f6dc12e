import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { unsupportedFields, unsupportedInContainer } from './supported-fields.ts';

const refused = (spec: object) => unsupportedFields({ spec } as unknown as Pod);
const withContainer = (fields: object) => ({ containers: [{ name: 'main', image: 'host', ...fields }] });

describe('refused by name', () => {
  for (const [path, spec] of [
    ['spec.resourceClaims', { resourceClaims: [{ name: 'gpu' }] }],
    ['spec.resources', { resources: { limits: { cpu: 1 } } }],
    ['spec.hostUsers=false', { hostUsers: false }],
    ['spec.os.name=windows', { os: { name: 'windows' } }],
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
    [
      'spec.containers[0].restartPolicyRules[0].action=RestartAllContainers',
      withContainer({ restartPolicyRules: [{ action: 'RestartAllContainers' }] }),
    ],
    ['spec.containers[0].resources.claims', withContainer({ resources: { claims: [{ name: 'gpu' }] } })],
    [
      'spec.containers[0].resources.limits.nvidia.com/gpu',
      withContainer({ resources: { limits: { cpu: '1', 'nvidia.com/gpu': '1' } } }),
    ],
    [
      'spec.containers[0].resources.limits.hugepages-2Mi',
      withContainer({ resources: { limits: { cpu: '1', 'hugepages-2Mi': '2Mi' } } }),
    ],
    [
      'spec.containers[0].env[0].valueFrom.fileKeyRef',
      withContainer({ env: [{ name: 'A', valueFrom: { fileKeyRef: { path: 'x' } } }] }),
    ],
    ['spec.containers[0].livenessProbe.future', withContainer({ livenessProbe: { future: 1 } })],
  ] as const) {
    test(path, () => assert.deepEqual(refused(spec), [path]));
  }
  test('all of them together', () => {
    assert.deepEqual(refused({ hostUsers: false, resourceClaims: [{ name: 'y' }] }), [
      'spec.resourceClaims',
      'spec.hostUsers=false',
    ]);
  });
  test('in an ephemeral container, by its own path', () => {
    assert.deepEqual(unsupportedInContainer({ name: 'e', livenessProbe: { exec: {} } }), ['livenessProbe']);
    assert.deepEqual(unsupportedInContainer({ name: 'e', targetContainerName: 'main' }), []);
  });
});

describe('not refused', () => {
  test('limits of extended resources that the node has', () => {
    const limits = (...names: string[]) =>
      withContainer({ resources: { limits: Object.fromEntries(names.map((name) => [name, '1'])) } });
    const offers = (name: string) => name !== 'example.com/none';
    const spec = limits('example.com/gpu', 'example.com/none', 'hugepages-2Mi') as Pod['spec'];
    assert.deepEqual(unsupportedFields({ spec } as Pod, offers), [
      'spec.containers[0].resources.limits.example.com/none',
      'spec.containers[0].resources.limits.hugepages-2Mi',
    ]);
  });
  for (const [what, spec] of [
    ['one process namespace for all', { shareProcessNamespace: true }],
    ['a RuntimeClass: it is looked up at the start', { runtimeClassName: 'gvisor' }],
    [
      'labels of SELinux, which the node does not have',
      { securityContext: { seLinuxOptions: { level: 's0' } } },
    ],
    ['a filter of system calls from a file', { securityContext: { seccompProfile: { type: 'Localhost' } } }],
    ['a change of resources', withContainer({ resizePolicy: [{ resourceName: 'cpu' }] })],
    ['an own restart policy', withContainer({ restartPolicy: 'Always' })],
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
