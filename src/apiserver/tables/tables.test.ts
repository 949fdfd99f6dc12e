import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KINDS } from '../kinds.ts';
import { CREATED, row, tables } from './testing/row.ts';

function headers(group: string, kind: string): string {
  const columns = tables.columns(group, kind) as readonly { name: string; priority: number }[];
  const names = (priority: number) =>
    columns.filter((column) => column.priority === priority).map((column) => column.name.toUpperCase());
  return [names(0).join(' '), names(1).join(' ')].filter((text) => text !== '').join(' | ');
}

test('columns equal upstream’s', async (t) => {
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

test('every served kind renders, even with almost no fields', () => {
  for (const { group, kind } of KINDS) row(group, kind, {}, true);
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
      'service with an external name',
      '',
      'Service',
      { spec: { type: 'ExternalName', externalName: 'db.example' } },
      'x ¦ ExternalName ¦ <none> ¦ db.example ¦ <none> ¦ 5m ¦ <none>',
    ],
    [
      'slice with more endpoints than shown',
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
      'node that stopped reporting',
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
      'completed job',
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
      'event with a count',
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
      'autoscaler without metrics yet',
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
