import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KINDS } from '../kinds.ts';
import { humanDuration } from './human-duration.ts';
import { createTableService } from './tables.ts';

const NOW = new Date('2024-05-06T12:00:00Z');
const CREATED = '2024-05-06T11:55:00Z';
const tables = createTableService();

/** What one row of `kubectl get` shows, by column; `wide` as with -o wide. */
function row(group: string, kind: string, object: object, wide = false): string {
  const cells = tables.cells(
    group,
    kind,
    { metadata: { name: 'x', creationTimestamp: CREATED }, ...object },
    NOW,
  );
  const columns = tables.columns(group, kind) as readonly { name: string; priority: number }[];
  assert.equal(cells.length, columns.length, `${kind}: as many cells as columns`);
  return columns
    .flatMap((column, index) => (wide || column.priority === 0 ? [String(cells[index])] : []))
    .join(' ¦ ');
}

function headers(group: string, kind: string): string {
  const columns = tables.columns(group, kind) as readonly { name: string; priority: number }[];
  const names = (priority: number) =>
    columns.filter((column) => column.priority === priority).map((column) => column.name.toUpperCase());
  return [names(0).join(' '), names(1).join(' ')].filter((text) => text !== '').join(' | ');
}

test('columns are the ones people know', async (t) => {
  const rows: [group: string, kind: string, columns: string][] = [
    ['', 'Pod', 'NAME READY STATUS RESTARTS AGE | IP NODE NOMINATED NODE READINESS GATES'],
    ['', 'Service', 'NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE | SELECTOR'],
    ['discovery.k8s.io', 'EndpointSlice', 'NAME ADDRESSTYPE PORTS ENDPOINTS AGE'],
    [
      '',
      'Node',
      'NAME STATUS ROLES AGE VERSION | INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME',
    ],
    ['apps', 'Deployment', 'NAME READY UP-TO-DATE AVAILABLE AGE | CONTAINERS IMAGES SELECTOR'],
    [
      'apps',
      'DaemonSet',
      'NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE | CONTAINERS IMAGES SELECTOR',
    ],
    ['apps', 'ReplicaSet', 'NAME DESIRED CURRENT READY AGE | CONTAINERS IMAGES SELECTOR'],
    ['apps', 'StatefulSet', 'NAME READY AGE | CONTAINERS IMAGES'],
    ['batch', 'Job', 'NAME STATUS COMPLETIONS DURATION AGE | CONTAINERS IMAGES SELECTOR'],
    ['', 'Event', 'LAST SEEN TYPE REASON OBJECT MESSAGE | SUBOBJECT SOURCE FIRST SEEN COUNT NAME'],
    ['rbac.authorization.k8s.io', 'Role', 'NAME CREATED AT'],
    ['example.com', 'Unheard', 'NAME CREATED AT'],
  ];
  for (const [group, kind, expected] of rows) {
    await t.test(kind, () => assert.equal(headers(group, kind), expected));
  }
});

test('every kind that is served renders, even when it is all but empty', () => {
  for (const { group, kind } of KINDS) row(group, kind, {}, true);
});

const running = (extra: object = {}) => ({
  name: 'a',
  ready: true,
  restartCount: 0,
  state: { running: {} },
  ...extra,
});
const pod = (spec: object, status: object, metadata: object = {}) => ({
  metadata: { name: 'x', creationTimestamp: CREATED, ...metadata },
  spec: { containers: [{ name: 'a' }], ...spec },
  status,
});
const waiting = (reason: string) => ({
  name: 'a',
  ready: false,
  restartCount: 0,
  state: { waiting: { reason } },
});
const ended = (exitCode: number, extra: object = {}) => ({
  name: 'a',
  ready: false,
  restartCount: 0,
  state: { terminated: { exitCode, ...extra } },
});

test('pods say what is the matter', async (t) => {
  const inits = { initContainers: [{ name: 'i' }, { name: 'j' }] };
  const sidecar = { initContainers: [{ name: 'i', restartPolicy: 'Always' }] };
  const completed = ended(0, { reason: 'Completed' });
  const rows: [behaviour: string, pod: object, expected: string][] = [
    ['not yet scheduled', pod({}, { phase: 'Pending' }), '0/1 ¦ Pending ¦ 0'],
    ['running', pod({}, { phase: 'Running', containerStatuses: [running()] }), '1/1 ¦ Running ¦ 0'],
    [
      'starting',
      pod({}, { phase: 'Pending', containerStatuses: [waiting('ContainerCreating')] }),
      '0/1 ¦ ContainerCreating ¦ 0',
    ],
    [
      'restarted a while ago',
      pod(
        {},
        {
          phase: 'Running',
          containerStatuses: [
            running({ restartCount: 2, lastState: { terminated: { finishedAt: '2024-05-06T11:55:00Z' } } }),
          ],
        },
      ),
      '1/1 ¦ Running ¦ 2 (5m ago)',
    ],
    [
      'crashing again and again',
      pod({}, { phase: 'Running', containerStatuses: [{ ...waiting('CrashLoopBackOff'), restartCount: 4 }] }),
      '0/1 ¦ CrashLoopBackOff ¦ 4',
    ],
    ['done', pod({}, { phase: 'Succeeded', containerStatuses: [completed] }), '0/1 ¦ Completed ¦ 0'],
    [
      'failed',
      pod({}, { phase: 'Failed', containerStatuses: [ended(1, { reason: 'Error' })] }),
      '0/1 ¦ Error ¦ 0',
    ],
    [
      'failed without a reason',
      pod({}, { phase: 'Failed', containerStatuses: [ended(3)] }),
      '0/1 ¦ ExitCode:3 ¦ 0',
    ],
    [
      'killed',
      pod({}, { phase: 'Failed', containerStatuses: [ended(137, { signal: 9 })] }),
      '0/1 ¦ Signal:9 ¦ 0',
    ],
    ['evicted', pod({}, { phase: 'Failed', reason: 'Evicted' }), '0/1 ¦ Evicted ¦ 0'],
    [
      'one of two done, pod ready',
      pod(
        { containers: [{ name: 'a' }, { name: 'b' }] },
        {
          phase: 'Running',
          conditions: [{ type: 'Ready', status: 'True' }],
          containerStatuses: [completed, running({ name: 'b' })],
        },
      ),
      '1/2 ¦ Running ¦ 0',
    ],
    [
      'one of two done, pod not ready',
      pod(
        { containers: [{ name: 'a' }, { name: 'b' }] },
        { phase: 'Running', containerStatuses: [completed, running({ name: 'b' })] },
      ),
      '1/2 ¦ NotReady ¦ 0',
    ],
    [
      'first init container still running',
      pod(inits, { phase: 'Pending', initContainerStatuses: [running({ name: 'i', ready: false })] }),
      '0/1 ¦ Init:0/2 ¦ 0',
    ],
    [
      'second init container starting',
      pod(inits, {
        phase: 'Pending',
        initContainerStatuses: [
          { ...ended(0), name: 'i' },
          { ...waiting('PodInitializing'), name: 'j' },
        ],
      }),
      '0/1 ¦ Init:1/2 ¦ 0',
    ],
    [
      'init container fails and is tried again',
      pod(inits, {
        phase: 'Pending',
        initContainerStatuses: [{ ...waiting('CrashLoopBackOff'), name: 'i', restartCount: 3 }],
      }),
      '0/1 ¦ Init:CrashLoopBackOff ¦ 3',
    ],
    [
      'init container failed',
      pod(inits, { phase: 'Failed', initContainerStatuses: [{ ...ended(2), name: 'i' }] }),
      '0/1 ¦ Init:ExitCode:2 ¦ 0',
    ],
    [
      'a sidecar counts as a container',
      pod(sidecar, {
        phase: 'Running',
        initContainerStatuses: [running({ name: 'i', started: true, restartCount: 1 })],
        containerStatuses: [running()],
      }),
      '2/2 ¦ Running ¦ 1',
    ],
    [
      'being deleted',
      pod({}, { phase: 'Running', containerStatuses: [running()] }, { deletionTimestamp: CREATED }),
      '1/1 ¦ Terminating ¦ 0',
    ],
    [
      'being deleted when done already',
      pod({}, { phase: 'Succeeded', containerStatuses: [completed] }, { deletionTimestamp: CREATED }),
      '0/1 ¦ Completed ¦ 0',
    ],
    [
      'on a node that is lost',
      pod({}, { phase: 'Running', reason: 'NodeLost' }, { deletionTimestamp: CREATED }),
      '0/1 ¦ Unknown ¦ 0',
    ],
    [
      'held back by a gate',
      pod(
        {},
        {
          phase: 'Pending',
          conditions: [{ type: 'PodScheduled', status: 'False', reason: 'SchedulingGated' }],
        },
      ),
      '0/1 ¦ SchedulingGated ¦ 0',
    ],
  ];
  for (const [behaviour, object, expected] of rows) {
    await t.test(behaviour, () => assert.equal(row('', 'Pod', object), `x ¦ ${expected} ¦ 5m`));
  }
  await t.test('wide: address, node and readiness gates', () => {
    const object = pod(
      { nodeName: 'n1', readinessGates: [{ conditionType: 'lb' }, { conditionType: 'db' }] },
      { phase: 'Running', podIPs: [{ ip: '10.0.0.1' }], conditions: [{ type: 'lb', status: 'True' }] },
    );
    assert.equal(row('', 'Pod', object, true), 'x ¦ 0/1 ¦ Running ¦ 0 ¦ 5m ¦ 10.0.0.1 ¦ n1 ¦ <none> ¦ 1/2');
  });
});

test('rows of other kinds', async (t) => {
  const http = { name: 'http', port: 80, protocol: 'TCP' };
  const balancer = (...ingress: object[]) => ({ loadBalancer: { ingress } });
  const template = {
    template: {
      spec: {
        containers: [
          { name: 'a', image: 'i' },
          { name: 'b', image: 'j' },
        ],
      },
    },
  };
  const rows: [behaviour: string, group: string, kind: string, object: object, expected: string][] = [
    [
      'service with a cluster address',
      '',
      'Service',
      { spec: { type: 'ClusterIP', clusterIPs: ['10.96.0.1'], ports: [http], selector: { b: '2', a: '1' } } },
      'x ¦ ClusterIP ¦ 10.96.0.1 ¦ <none> ¦ 80/TCP ¦ 5m ¦ a=1,b=2',
    ],
    [
      'headless service without ports',
      '',
      'Service',
      { spec: { type: 'ClusterIP', clusterIPs: ['None'] } },
      'x ¦ ClusterIP ¦ None ¦ <none> ¦ <none> ¦ 5m ¦ <none>',
    ],
    [
      'service with node ports',
      '',
      'Service',
      {
        spec: {
          type: 'NodePort',
          clusterIPs: ['10.96.0.1'],
          externalIPs: ['192.0.2.1'],
          ports: [
            { ...http, nodePort: 30080 },
            { port: 53, protocol: 'UDP', nodePort: 30053 },
          ],
        },
      },
      'x ¦ NodePort ¦ 10.96.0.1 ¦ 192.0.2.1 ¦ 80:30080/TCP,53:30053/UDP ¦ 5m ¦ <none>',
    ],
    [
      'balancer that has no address yet',
      '',
      'Service',
      { spec: { type: 'LoadBalancer', clusterIPs: ['10.96.0.1'], ports: [http] } },
      'x ¦ LoadBalancer ¦ 10.96.0.1 ¦ <pending> ¦ 80/TCP ¦ 5m ¦ <none>',
    ],
    [
      'balancer with addresses',
      '',
      'Service',
      {
        spec: { type: 'LoadBalancer', clusterIPs: ['10.96.0.1'], ports: [http] },
        status: balancer({ ip: '192.0.2.9' }, { hostname: 'lb.example' }),
      },
      'x ¦ LoadBalancer ¦ 10.96.0.1 ¦ 192.0.2.9,lb.example ¦ 80/TCP ¦ 5m ¦ <none>',
    ],
    [
      'service that is a name elsewhere',
      '',
      'Service',
      { spec: { type: 'ExternalName', externalName: 'db.example' } },
      'x ¦ ExternalName ¦ <none> ¦ db.example ¦ <none> ¦ 5m ¦ <none>',
    ],
    [
      'slice with more endpoints than fit',
      'discovery.k8s.io',
      'EndpointSlice',
      {
        addressType: 'IPv4',
        ports: [{ port: 80 }, { name: 'all' }],
        endpoints: [1, 2, 3, 4, 5].map((i) => ({ addresses: [`10.0.0.${i}`] })),
      },
      'x ¦ IPv4 ¦ 80,all ¦ 10.0.0.1,10.0.0.2,10.0.0.3 + 2 more... ¦ 5m',
    ],
    [
      'slice without endpoints',
      'discovery.k8s.io',
      'EndpointSlice',
      { addressType: 'IPv6', ports: [], endpoints: [] },
      'x ¦ IPv6 ¦ <unset> ¦ <unset> ¦ 5m',
    ],
    [
      'endpoints of both families',
      '',
      'Endpoints',
      { subsets: [{ addresses: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }], ports: [{ port: 80 }] }] },
      'x ¦ 10.0.0.1:80,[fd00::1]:80 ¦ 5m',
    ],
    [
      'node out of service, with roles',
      '',
      'Node',
      {
        metadata: {
          name: 'x',
          creationTimestamp: CREATED,
          labels: { 'node-role.kubernetes.io/worker': '', 'node-role.kubernetes.io/control-plane': '' },
        },
        spec: { unschedulable: true },
        status: {
          conditions: [{ type: 'Ready', status: 'True' }],
          addresses: [{ type: 'InternalIP', address: '10.0.0.1' }],
          nodeInfo: {
            kubeletVersion: 'v1.33.0',
            osImage: 'Debian',
            kernelVersion: '6.1',
            containerRuntimeVersion: 'c://1',
          },
        },
      },
      'x ¦ Ready,SchedulingDisabled ¦ control-plane,worker ¦ 5m ¦ v1.33.0 ¦ 10.0.0.1 ¦ <none> ¦ Debian ¦ 6.1 ¦ c://1',
    ],
    [
      'node that has fallen silent',
      '',
      'Node',
      { status: { conditions: [{ type: 'Ready', status: 'Unknown' }] } },
      'x ¦ NotReady ¦ <none> ¦ 5m ¦  ¦ <none> ¦ <none> ¦ <unknown> ¦ <unknown> ¦ <unknown>',
    ],
    [
      'deployment in the middle of a rollout',
      'apps',
      'Deployment',
      {
        spec: { replicas: 3, ...template, selector: { matchLabels: { app: 'x' } } },
        status: { readyReplicas: 2, updatedReplicas: 1, availableReplicas: 2 },
      },
      'x ¦ 2/3 ¦ 1 ¦ 2 ¦ 5m ¦ a,b ¦ i,j ¦ app=x',
    ],
    [
      'replica set selecting by expressions',
      'apps',
      'ReplicaSet',
      {
        spec: {
          replicas: 2,
          selector: {
            matchExpressions: [
              { key: 'tier', operator: 'In', values: ['b', 'a'] },
              { key: 'old', operator: 'DoesNotExist' },
            ],
          },
        },
        status: { replicas: 2 },
      },
      'x ¦ 2 ¦ 2 ¦ 0 ¦ 5m ¦  ¦  ¦ !old,tier in (a,b)',
    ],
    [
      'daemon set bound to some nodes',
      'apps',
      'DaemonSet',
      {
        spec: { template: { spec: { containers: [], nodeSelector: { disk: 'ssd' } } } },
        status: {
          desiredNumberScheduled: 3,
          currentNumberScheduled: 3,
          numberReady: 2,
          updatedNumberScheduled: 3,
        },
      },
      'x ¦ 3 ¦ 3 ¦ 2 ¦ 3 ¦ 0 ¦ disk=ssd ¦ 5m ¦  ¦  ¦ <none>',
    ],
    [
      'job that is done',
      'batch',
      'Job',
      {
        spec: { completions: 3 },
        status: {
          succeeded: 3,
          startTime: '2024-05-06T11:00:00Z',
          completionTime: '2024-05-06T11:01:40Z',
          conditions: [{ type: 'Complete', status: 'True' }],
        },
      },
      'x ¦ Complete ¦ 3/3 ¦ 100s ¦ 5m ¦  ¦  ¦ <none>',
    ],
    [
      'event that happened often',
      '',
      'Event',
      {
        involvedObject: { kind: 'Pod', name: 'p', fieldPath: 'spec.containers{a}' },
        type: 'Warning',
        reason: 'BackOff',
        message: 'again\n',
        count: 7,
        source: { component: 'kubelet', host: 'n1' },
        firstTimestamp: '2024-05-06T11:50:00Z',
        lastTimestamp: '2024-05-06T11:59:00Z',
      },
      '60s ¦ Warning ¦ BackOff ¦ pod/p ¦ spec.containers{a} ¦ kubelet, n1 ¦ again ¦ 10m ¦ 7 ¦ x',
    ],
    [
      'event of the new API',
      'events.k8s.io',
      'Event',
      {
        regarding: { kind: 'Node', name: 'n' },
        reason: 'Seen',
        note: 'hello',
        eventTime: '2024-05-06T11:59:30.000000Z',
        reportingController: 'c',
      },
      '30s ¦  ¦ Seen ¦ node/n ¦  ¦ c ¦ hello ¦ 30s ¦ 1 ¦ x',
    ],
    ['secret', '', 'Secret', { type: 'Opaque', data: { a: '', b: '' } }, 'x ¦ Opaque ¦ 2 ¦ 5m'],
    ['config map', '', 'ConfigMap', { data: { a: '' }, binaryData: { b: '' } }, 'x ¦ 2 ¦ 5m'],
    ['lease', 'coordination.k8s.io', 'Lease', { spec: { holderIdentity: 'n1' } }, 'x ¦ n1 ¦ 5m'],
    [
      'ingress for every host',
      'networking.k8s.io',
      'Ingress',
      { spec: { rules: [{}], tls: [{}] } },
      'x ¦ <none> ¦ * ¦  ¦ 80, 443 ¦ 5m',
    ],
    [
      'autoscaler that has not measured yet',
      'autoscaling',
      'HorizontalPodAutoscaler',
      {
        spec: {
          scaleTargetRef: { kind: 'Deployment', name: 'web' },
          minReplicas: 1,
          maxReplicas: 3,
          metrics: [{ type: 'Resource', resource: { name: 'cpu', target: { averageUtilization: 50 } } }],
        },
        status: { currentReplicas: 1 },
      },
      'x ¦ Deployment/web ¦ cpu: <unknown>/50% ¦ 1 ¦ 3 ¦ 1 ¦ 5m',
    ],
    [
      'disruption budget',
      'policy',
      'PodDisruptionBudget',
      { spec: { minAvailable: '50%' }, status: { disruptionsAllowed: 1 } },
      'x ¦ 50% ¦ N/A ¦ 1 ¦ 5m',
    ],
    [
      'role binding',
      'rbac.authorization.k8s.io',
      'RoleBinding',
      {
        roleRef: { kind: 'Role', name: 'r' },
        subjects: [
          { kind: 'User', name: 'u' },
          { kind: 'ServiceAccount', namespace: 'n', name: 's' },
        ],
      },
      'x ¦ Role/r ¦ 5m ¦ u ¦  ¦ n/s',
    ],
  ];
  for (const [behaviour, group, kind, object, expected] of rows) {
    await t.test(behaviour, () => assert.equal(row(group, kind, object, true), expected));
  }
});

test('ages', async (t) => {
  const second = 1000;
  const minute = 60 * second;
  const hour = 60 * minute;
  const day = 24 * hour;
  const rows: [milliseconds: number, expected: string][] = [
    [-5 * second, '<invalid>'],
    [-1500, '0s'],
    [999, '0s'],
    [119 * second, '119s'],
    [2 * minute, '2m'],
    [9 * minute + 59 * second, '9m59s'],
    [10 * minute + 59 * second, '10m'],
    [179 * minute, '179m'],
    [3 * hour, '3h'],
    [7 * hour + 59 * minute, '7h59m'],
    [47 * hour, '47h'],
    [2 * day, '2d'],
    [7 * day + 23 * hour, '7d23h'],
    [8 * day + 23 * hour, '8d'],
    [729 * day, '729d'],
    [731 * day, '2y1d'],
    [8 * 365 * day + day, '8y'],
  ];
  for (const [milliseconds, expected] of rows) {
    await t.test(expected, () => assert.equal(humanDuration(milliseconds), expected));
  }
});
