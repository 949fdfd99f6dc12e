import {
  client,
  clusterIp,
  echo,
  type Json,
  listenOn,
  nodePort,
  pod,
  policy,
  probe,
  service,
} from './question-objects.ts';

/** The objects of the questions about rarer fields, in the same cluster as those of question-scene.ts. */

const DNS_PORTS = [
  { protocol: 'UDP', port: 53 },
  { protocol: 'TCP', port: 53 },
];
const CLUSTER_DNS = {
  namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } },
  podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } },
};
const selects = (app: string) => ({ podSelector: { matchLabels: { app } } });
const never = { readinessProbe: { exec: { command: ['false'] }, periodSeconds: 1 } };

/** Runs a server that stops as soon as it listens, and fills its queue. */
const STUCK = [
  '/opt/fairlead/node',
  '-e',
  `const node = '/opt/fairlead/node';
const server = "require('net').createServer().listen({ port: 8080, backlog: 1 }, () => process.kill(process.pid, 'SIGSTOP'))";
require('child_process').spawn(node, ['-e', server], { stdio: 'inherit' });
const fill = () => require('net').connect(8080, '127.0.0.1').on('error', () => setTimeout(fill, 100));
for (let i = 0; i < 3; i++) fill();`,
];

type Endpoint = Readonly<{ address: string; conditions?: Json; hostname?: string }>;

function manualSlice(owner: string, port: number, endpoints: readonly Endpoint[]): Json {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: `${owner}-1`, namespace: 'default', labels: { 'kubernetes.io/service-name': owner } },
    addressType: 'IPv4',
    ports: [{ name: '', port, protocol: 'TCP' }],
    endpoints: endpoints.map(({ address, conditions = { ready: true }, ...rest }) => ({
      addresses: [address],
      conditions,
      ...rest,
    })),
  };
}

/** `podAddress` returns the IPv4 address of a pod of question-scene.ts. */
export function cornerObjects(
  outside: string,
  node1: string,
  podNetwork1: string,
  podAddress: (name: string) => string,
): Json[] {
  return [
    // Names.
    client('few-searches', { spec: { dnsPolicy: 'None', dnsConfig: { nameservers: ['10.96.0.10'] } } }),
    client('lab-searches', { spec: { dnsConfig: { searches: ['lab.svc.cluster.local'] } } }),
    echo('db-0', 'db', 'node-2', 8080, { spec: { hostname: 'db-0', subdomain: 'db' } }),
    service('db', 'db', { clusterIP: 'None' }),
    service('hl-unready', 'unready', { clusterIP: 'None' }),
    service('hl-published', 'unready', { clusterIP: 'None', publishNotReadyAddresses: true }),
    service('published', 'unready', { publishNotReadyAddresses: true }),
    pod('unready', ['fairlead', 'echo', '--port=8080'], { node: 'node-2', container: never }),
    service('nowhere', null, { type: 'ExternalName', externalName: 'nothing.default.svc.cluster.local' }),
    service('twice', null, { type: 'ExternalName', externalName: 'alias.default.svc.cluster.local' }),
    service('alias-headless', null, { type: 'ExternalName', externalName: 'db.default.svc.cluster.local' }),

    // Ports and sockets.
    echo('mixed-a', 'mixed', 'node-1', 8080, {
      container: { ...probe(8080), ports: [{ name: 'http', containerPort: 8080 }] },
    }),
    echo('mixed-b', 'mixed', 'node-2', 9090, {
      container: { ...probe(9090), ports: [{ name: 'http', containerPort: 9090 }] },
    }),
    service('mixed', 'mixed', { ports: [{ port: 80, targetPort: 'http' }] }),
    pod('sidecar', listenOn('sidecar', '127.0.0.1'), {
      node: 'node-2',
      spec: {
        containers: [
          { name: 'main', image: 'fairlead', command: listenOn('sidecar', '127.0.0.1', 8080) },
          { name: 'proxy', image: 'fairlead', command: listenOn('sidecar', '0.0.0.0', 9090) },
        ],
      },
    }),
    service('side-main', 'sidecar'),
    service('side-proxy', 'sidecar', { ports: [{ port: 80, targetPort: 9090 }] }),
    echo('lo-port', 'lo-port', 'node-1', 8080, {
      container: { ...probe(8080), ports: [{ containerPort: 8080, hostPort: 18081, hostIP: '127.0.0.1' }] },
    }),
    echo('udp-port', 'udp-port', 'node-2', 8080, {
      container: { ...probe(8080), ports: [{ containerPort: 8080, hostPort: 18082, protocol: 'UDP' }] },
    }),
    service('both', 'web', {
      ports: [
        { name: 'a', port: 80, targetPort: 8080 },
        { name: 'b', port: 8080, targetPort: 8080 },
      ],
    }),

    pod('stuck', STUCK, { node: 'node-2' }),
    service('stuck', 'stuck', {}, { annotations: { 'fairlead.dev/failover': 'disabled' } }),

    // Endpoints.
    service('listed', null),
    manualSlice('listed', 8080, [
      { address: podAddress('lone') },
      { address: podAddress('slow'), conditions: { ready: false } },
    ]),
    service('ending', null),
    manualSlice('ending', 8080, [
      { address: podAddress('lone'), conditions: { ready: false, serving: true, terminating: true } },
    ]),
    service('ended', null),
    manualSlice('ended', 8080, [
      { address: podAddress('lone'), conditions: { ready: false, serving: false, terminating: true } },
    ]),
    service('to-node', null),
    manualSlice('to-node', 8085, [{ address: node1.replace(/1$/, '2') }]),
    service('hand-guarded', null, nodePort(30018)),
    manualSlice('hand-guarded', 8080, [{ address: podAddress('guarded') }]),
    service('named-slice', null, { clusterIP: 'None' }),
    manualSlice('named-slice', 8080, [{ address: podAddress('lone'), hostname: 'first' }]),

    // Traffic policies and addresses.
    service('health', 'lone', {
      type: 'LoadBalancer',
      externalTrafficPolicy: 'Local',
      healthCheckNodePort: 30010,
    }),
    service('other-class', 'web', { type: 'LoadBalancer', loadBalancerClass: 'example.com/other' }),
    service('no-node-ports', 'web', { type: 'LoadBalancer', allocateLoadBalancerNodePorts: false }),
    service('ranges-pods', 'web', {
      type: 'LoadBalancer',
      loadBalancerSourceRanges: ['10.244.0.0/16'],
      ports: [{ port: 80, targetPort: 8080, nodePort: 30001 }],
    }),
    service('local-both', 'lone', {
      ...nodePort(30012),
      externalTrafficPolicy: 'Local',
      internalTrafficPolicy: 'Local',
    }),
    service('host-local', 'hostweb', {
      type: 'NodePort',
      externalTrafficPolicy: 'Local',
      ports: [{ port: 80, targetPort: 8085, nodePort: 30003 }],
    }),

    // Policies.
    service('guarded-port', 'guarded', nodePort(30014)),
    service('udp-node', 'web', {
      type: 'NodePort',
      ports: [{ port: 80, targetPort: 8080, nodePort: 30009, protocol: 'UDP' }],
    }),
    echo('by-name', 'by-name', 'node-2', 8080, {
      container: { ...probe(8080), ports: [{ name: 'api', containerPort: 8080 }] },
    }),
    service('by-name', 'by-name', {
      ports: [
        { name: 'api', port: 80, targetPort: 'api' },
        { name: 'other', port: 81, targetPort: 9999 },
      ],
    }),
    policy('by-name', { app: 'by-name' }, { ingress: [{ ports: [{ port: 'api' }] }] }),
    echo('range', 'range', 'node-2'),
    service('range', 'range', nodePort(30015)),
    policy('range', { app: 'range' }, { ingress: [{ ports: [{ port: 8000, endPort: 8079 }] }] }),
    echo('except', 'except', 'node-2'),
    service('except', 'except', nodePort(30016)),
    policy(
      'except',
      { app: 'except' },
      { ingress: [{ from: [{ ipBlock: { cidr: '10.244.0.0/16', except: [podNetwork1] } }] }] },
    ),
    echo('nodes-only', 'nodes-only', 'node-2'),
    service('nodes-only', 'nodes-only', nodePort(30017)),
    policy(
      'nodes-only',
      { app: 'nodes-only' },
      { ingress: [{ from: [{ ipBlock: { cidr: '172.30.0.0/24' } }] }] },
    ),
    echo('nothing-in', 'nothing-in', 'node-1'),
    service('nothing-in', 'nothing-in'),
    policy('nothing-in', { app: 'nothing-in' }, { ingress: [] }),
    client('to-vip'),
    policy(
      'to-vip',
      { app: 'to-vip' },
      { egress: [{ to: [{ ipBlock: { cidr: `${clusterIp('web')}/32` } }] }] },
    ),
    client('dns-ok'),
    policy(
      'dns-ok',
      { app: 'dns-ok' },
      { egress: [{ to: [CLUSTER_DNS], ports: DNS_PORTS }, { to: [selects('web')] }] },
    ),
    client('dns-any'),
    policy('dns-any', { app: 'dns-any' }, { egress: [{ ports: DNS_PORTS }, { to: [selects('web')] }] }),
    client('to-outside'),
    policy(
      'to-outside',
      { app: 'to-outside' },
      { egress: [{ to: [{ ipBlock: { cidr: `${outside}/32` } }] }] },
    ),
    client('host-egress', { spec: { hostNetwork: true, dnsPolicy: 'ClusterFirstWithHostNet' } }),
    policy('host-egress', { app: 'host-egress' }, { egress: [] }),
    client('to-port'),
    policy('to-port', { app: 'to-port' }, { egress: [{ to: [selects('web')], ports: [{ port: 80 }] }] }),
  ];
}

/** Pods that never become ready. */
export const CORNER_UNREADY = ['unready'];
