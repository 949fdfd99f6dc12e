import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startApi } from '../../testing/api.ts';

const api = startApi();
after(() => api.server.close());
for (const level of ['baseline', 'restricted']) {
  await api.request('POST', '/api/v1/namespaces', {
    metadata: { name: level, labels: { 'pod-security.kubernetes.io/enforce': level } },
  });
}

const GOOD = {
  allowPrivilegeEscalation: false,
  runAsNonRoot: true,
  capabilities: { drop: ['ALL'] },
  seccompProfile: { type: 'RuntimeDefault' },
};
const container = (securityContext: object = {}, more: object = {}) => ({
  name: 'c',
  image: 'i',
  securityContext,
  ...more,
});

const ROWS: readonly [level: string, name: string, spec: object, refusal: string | null][] = [
  ['baseline', 'a plain pod', { containers: [container()] }, null],
  ['restricted', 'a restricted pod', { containers: [container(GOOD)] }, null],
  [
    'baseline',
    'a privileged container',
    { containers: [container({ privileged: true })] },
    'privileged (container "c" must not set securityContext.privileged=true)',
  ],
  [
    'baseline',
    "the host's namespaces",
    { hostNetwork: true, hostPID: true, containers: [container()] },
    'host namespaces (hostNetwork=true, hostPID=true)',
  ],
  [
    'baseline',
    'a capability that is not default',
    { containers: [container({ capabilities: { add: ['NET_ADMIN'] } })] },
    'non-default capabilities (container "c" must not include "NET_ADMIN" in securityContext.capabilities.add)',
  ],
  [
    'baseline',
    'a host port',
    { containers: [container({}, { ports: [{ containerPort: 80, hostPort: 80 }] })] },
    'hostPort (container "c" uses hostPort 80)',
  ],
  [
    'baseline',
    'a probe of the host 127.0.0.1',
    { containers: [container({}, { livenessProbe: { httpGet: { port: 80, host: '127.0.0.1' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "127.0.0.1")',
  ],
  [
    'baseline',
    'a probe of the host localhost',
    { containers: [container({}, { livenessProbe: { httpGet: { port: 80, host: 'localhost' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "localhost")',
  ],
  [
    'baseline',
    'a probe of the host ::1',
    { containers: [container({}, { livenessProbe: { httpGet: { port: 80, host: '::1' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "::1")',
  ],
  [
    'baseline',
    'a probe of the host 10.0.0.1',
    { containers: [container({}, { livenessProbe: { httpGet: { port: 80, host: '10.0.0.1' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")',
  ],
  [
    'restricted',
    'a probe of the host 127.0.0.1',
    { containers: [container(GOOD, { livenessProbe: { httpGet: { port: 80, host: '127.0.0.1' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "127.0.0.1")',
  ],
  [
    'restricted',
    'a probe of the host localhost',
    { containers: [container(GOOD, { livenessProbe: { httpGet: { port: 80, host: 'localhost' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "localhost")',
  ],
  [
    'restricted',
    'a probe of the host ::1',
    { containers: [container(GOOD, { livenessProbe: { httpGet: { port: 80, host: '::1' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "::1")',
  ],
  [
    'restricted',
    'a probe of the host 10.0.0.1',
    { containers: [container(GOOD, { livenessProbe: { httpGet: { port: 80, host: '10.0.0.1' } } })] },
    'probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")',
  ],
  [
    'baseline',
    'hooks and probes with hosts',
    {
      initContainers: [
        {
          ...container(),
          name: 'i',
          restartPolicy: 'Always',
          lifecycle: { postStart: { httpGet: { port: 80, host: '5.5.5.5' } } },
        },
      ],
      containers: [container({}, { startupProbe: { tcpSocket: { port: 1, host: '9.9.9.9' } } })],
    },
    'probe or lifecycle host (containers "c", "i" use probe or lifecycle hosts "5.5.5.5", "9.9.9.9")',
  ],
  [
    'baseline',
    'a probe with an empty host and a header Host',
    {
      containers: [
        container(
          {},
          { livenessProbe: { httpGet: { port: 80, host: '', httpHeaders: [{ name: 'Host', value: 'x' }] } } },
        ),
      ],
    },
    null,
  ],
  [
    'baseline',
    "a path of the host's",
    { containers: [container()], volumes: [{ name: 'v', hostPath: { path: '/' } }] },
    'hostPath volumes (volume "v")',
  ],
  [
    'restricted',
    'a plain pod',
    { containers: [container()] },
    'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")',
  ],
  [
    'restricted',
    'the user root',
    { containers: [container({ ...GOOD, runAsUser: 0 })] },
    'runAsUser=0 (container "c" must not set runAsUser=0)',
  ],
];

for (const [level, name, spec, refusal] of ROWS) {
  test(`${level}: ${name}`, async () => {
    const pod = { metadata: { name: 'p' }, spec };
    const { status, body } = await api.request('POST', `/api/v1/namespaces/${level}/pods?dryRun=All`, pod);
    if (refusal === null) assert.equal(status, 201, body.message);
    else {
      assert.equal(status, 403);
      assert.equal(body.message, `pods "p" is forbidden: violates PodSecurity "${level}:latest": ${refusal}`);
    }
  });
}

test('a label that does not name a level is refused', async () => {
  const { status } = await api.request('POST', '/api/v1/namespaces', {
    metadata: { name: 'x', labels: { 'pod-security.kubernetes.io/enforce': 'strict' } },
  });
  assert.equal(status, 422);
});
