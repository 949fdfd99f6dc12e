/**
 * The objects that the questions to `explain` are about: pods, Services and policies, each with at most one
 * fault.
 */

type Json = Readonly<Record<string, unknown>>;

/** Cluster IPs of the scene's Services, by their names; the IPv6 address ends with 5000 more. */
const NUMBERS: Readonly<Record<string, number>> = {
  web: 1,
  'web-lb': 2,
  sticky: 3,
  local: 4,
  inside: 5,
  slow: 6,
  typo: 7,
  ranges: 8,
  named: 9,
  bare: 10,
  pending: 11,
  crash: 12,
  'wrong-target': 13,
  'default-target': 14,
  inner: 15,
  'ext-ip': 16,
  hostnet: 17,
  half: 18,
  multi: 19,
  udp: 20,
  'udp-refused': 21,
  guarded: 22,
  'to-outside': 23,
  'to-no-pod': 24,
  'to-nowhere': 25,
  'named-port': 26,
  'lb-local': 27,
  'lb-empty': 28,
  'lb-wrong-target': 29,
  split: 30,
  six: 31,
  'v4-only': 32,
  api: 33,
  'ranges-ok': 34,
  'host-wrong': 35,
  'second-port': 36,
};

export const clusterIp = (name: string) => `10.96.50.${NUMBERS[name]}`;
export const clusterIp6 = (name: string) => `fd00:10:96::${5000 + (NUMBERS[name] ?? 0)}`;
/** On the wire, but not assigned to a host. */
export const UNUSED_ON_WIRE = '172.30.0.77';
/** Off the wire: TEST-NET-3. */
export const OFF_WIRE = '203.0.113.77';

interface PodFields {
  readonly namespace?: string;
  readonly node?: string;
  readonly labels?: Json;
  readonly spec?: Json;
  readonly container?: Json;
}

function pod(name: string, command: readonly string[], fields: PodFields = {}): Json {
  const { namespace = 'default', node = 'node-1', labels = {}, spec = {}, container = {} } = fields;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace, labels: { app: name, ...labels } },
    spec: {
      nodeSelector: { 'kubernetes.io/hostname': node },
      terminationGracePeriodSeconds: 0,
      containers: [{ name: 'main', image: 'fairlead', command, ...container }],
      ...spec,
    },
  };
}

/** A resolver with a timeout of one second. */
const IMPATIENT = [
  { name: 'timeout', value: '1' },
  { name: 'attempts', value: '1' },
];
const probe = (port: number) => ({ readinessProbe: { tcpSocket: { port }, periodSeconds: 1 } });
const echo = (name: string, app: string, node: string, port = 8080, fields: PodFields = {}): Json =>
  pod(name, ['fairlead', 'echo', `--port=${port}`], {
    node,
    labels: { app },
    container: probe(port),
    ...fields,
  });
const client = (name: string, fields: PodFields = {}): Json => pod(name, ['sleep', 'infinity'], fields);
const listenOn = (name: string, address: string) => [
  '/opt/fairlead/node',
  '-e',
  `require('node:http').createServer((request, answer) => answer.end('hello from ${name} (you are ' + request.socket.remoteAddress + ')')).listen(8080, '${address}')`,
];

function service(name: string, app: string | null, spec: Json = {}, metadata: Json = {}): Json {
  const isHeadless = spec['clusterIP'] === 'None';
  const isSingle = spec['ipFamilyPolicy'] === 'SingleStack';
  const isName = spec['type'] === 'ExternalName';
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'default', ...metadata },
    spec: {
      ...(app === null ? {} : { selector: { app } }),
      ...(isName ? {} : { ports: [{ port: 80, targetPort: 8080 }] }),
      ...(isHeadless || isSingle || isName
        ? {}
        : {
            ipFamilyPolicy: 'RequireDualStack',
            clusterIP: clusterIp(name),
            clusterIPs: [clusterIp(name), clusterIp6(name)],
          }),
      ...spec,
    },
  };
}

function slice(owner: string, address: string, port: number): Json {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: `${owner}-1`, namespace: 'default', labels: { 'kubernetes.io/service-name': owner } },
    addressType: 'IPv4',
    ports: [{ name: '', port, protocol: 'TCP' }],
    endpoints: [{ addresses: [address], conditions: { ready: true } }],
  };
}

const nodePort = (number: number) => ({
  type: 'NodePort',
  ports: [{ port: 80, targetPort: 8080, nodePort: number }],
});

/** Returns all objects of the scene. `outside`: the address of the client outside. */
export function sceneObjects(outside: string): Json[] {
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'lab' } },
    echo('web-1', 'web', 'node-1', 8080, {
      container: { ...probe(8080), ports: [{ name: 'web', containerPort: 8080 }] },
    }),
    echo('web-2', 'web', 'node-2', 8080, {
      container: { ...probe(8080), ports: [{ name: 'web', containerPort: 8080 }] },
    }),
    echo('lone', 'lone', 'node-2'),
    echo('half-1', 'half', 'node-1'),
    echo('half-2', 'half', 'node-1', 9090),
    echo('guarded', 'guarded', 'node-2'),
    echo('hostweb', 'hostweb', 'node-2', 8085, { spec: { hostNetwork: true } }),
    echo('api-1', 'api', 'node-1', 8080, { namespace: 'lab' }),
    echo('hostport', 'hostport', 'node-1', 8080, {
      container: { ...probe(8080), ports: [{ containerPort: 8080, hostPort: 18080 }] },
    }),
    pod('split', ['fairlead', 'echo', '--port=8080', '--udp-port=9000'], { container: probe(8080) }),
    pod('inner', listenOn('inner', '127.0.0.1')),
    pod('v4-only', listenOn('v4-only', '0.0.0.0'), { container: probe(8080) }),
    pod('slow', ['fairlead', 'echo', '--port=8080'], {
      container: { readinessProbe: { exec: { command: ['false'] }, periodSeconds: 1 } },
    }),
    pod('crash', ['sh', '-c', 'exit 1']),
    pod('pending', ['sleep', 'infinity'], { spec: { nodeSelector: { none: 'such' } } }),
    client('client'),
    client('client-2', { node: 'node-2' }),
    client('client', { namespace: 'lab' }),
    client('friend'),
    client('silent'),
    client('web-only', { spec: { dnsConfig: { options: IMPATIENT } } }),
    client('host-client', { spec: { hostNetwork: true } }),
    client('host-dns', { spec: { hostNetwork: true, dnsPolicy: 'ClusterFirstWithHostNet' } }),
    client('default-dns', { spec: { dnsPolicy: 'Default' } }),
    client('own-dns', {
      spec: { dnsPolicy: 'None', dnsConfig: { nameservers: ['10.96.50.250'], options: IMPATIENT } },
    }),
    client('short-search', { spec: { dnsConfig: { options: [{ name: 'ndots', value: '1' }] } } }),
    client('aliased', { spec: { hostAliases: [{ ip: clusterIp('web'), hostnames: ['my-web'] }] } }),
    service('web', 'web', nodePort(30081)),
    service('web-lb', 'web', { type: 'LoadBalancer' }),
    service('sticky', 'web', { sessionAffinity: 'ClientIP' }),
    service('local', 'lone', { ...nodePort(30084), externalTrafficPolicy: 'Local' }),
    service('inside', 'lone', { internalTrafficPolicy: 'Local' }),
    service('slow', 'slow'),
    service('typo', 'wbe'),
    service('ranges', 'web', { type: 'LoadBalancer', loadBalancerSourceRanges: ['192.0.2.0/24'] }),
    service('ranges-ok', 'web', { type: 'LoadBalancer', loadBalancerSourceRanges: [`${outside}/32`] }),
    service('named', 'web', { ports: [{ port: 80, targetPort: 'http' }] }),
    service('named-port', 'web', { ports: [{ port: 80, targetPort: 'web' }] }),
    service('bare', null),
    service('pending', 'pending'),
    service('crash', 'crash'),
    service('wrong-target', 'web', { ports: [{ port: 80, targetPort: 9999 }] }),
    service('default-target', 'web', { ports: [{ port: 80 }] }),
    service('inner', 'inner'),
    service('v4-only', 'v4-only'),
    service('ext-ip', 'web', { externalIPs: [UNUSED_ON_WIRE, OFF_WIRE] }),
    service('hostnet', 'hostweb', {
      type: 'NodePort',
      ports: [{ port: 80, targetPort: 8085, nodePort: 30097 }],
    }),
    service('host-wrong', 'hostweb', { ports: [{ port: 80, targetPort: 8086 }] }),
    service('half', 'half', {}, { annotations: { 'fairlead.dev/failover': 'disabled' } }),
    service('multi', 'web', {
      ports: [
        { name: 'http', port: 80, targetPort: 8080 },
        { name: 'admin', port: 81, targetPort: 9999 },
      ],
    }),
    service('second-port', 'web', {
      ports: [
        { name: 'http', port: 80, targetPort: 8080 },
        { name: 'echo', port: 80, targetPort: 8080, protocol: 'UDP' },
      ],
    }),
    service('udp', 'web', { ports: [{ port: 80, targetPort: 8080, protocol: 'UDP' }] }),
    service('udp-refused', 'web', { ports: [{ port: 80, targetPort: 9999, protocol: 'UDP' }] }),
    service('split', 'split', { ports: [{ port: 80, targetPort: 8080, protocol: 'UDP' }] }),
    service('guarded', 'guarded'),
    service('to-outside', null),
    slice('to-outside', outside, 7777),
    service('to-no-pod', null),
    slice('to-no-pod', '10.244.0.250', 8080),
    service('to-nowhere', null),
    slice('to-nowhere', '198.51.100.7', 8080),
    service('lb-local', 'lone', { type: 'LoadBalancer', externalTrafficPolicy: 'Local' }),
    service('lb-empty', 'slow', { type: 'LoadBalancer', externalTrafficPolicy: 'Local' }),
    service('lb-wrong-target', 'web', { type: 'LoadBalancer', ports: [{ port: 80, targetPort: 9999 }] }),
    service('six', 'web', {
      ipFamilyPolicy: 'SingleStack',
      ipFamilies: ['IPv6'],
      clusterIP: clusterIp6('six'),
      clusterIPs: [clusterIp6('six')],
    }),
    service('headless', 'web', { clusterIP: 'None' }),
    service('headless-empty', 'wbe', { clusterIP: 'None' }),
    service('away', null, { type: 'ExternalName', externalName: 'www.example.com' }),
    service('alias', null, { type: 'ExternalName', externalName: 'web.default.svc.cluster.local' }),
    service('api', 'api', {}, { namespace: 'lab' }),
    policy(
      'guarded',
      { app: 'guarded' },
      { ingress: [{ from: [{ podSelector: { matchLabels: { app: 'friend' } } }] }] },
    ),
    policy('silent', { app: 'silent' }, { egress: [] }),
    policy(
      'web-only',
      { app: 'web-only' },
      { egress: [{ to: [{ podSelector: { matchLabels: { app: 'web' } } }] }] },
    ),
  ];
}

function policy(name: string, labels: Json, rules: Json): Json {
  const policyTypes = Object.keys(rules).map((key) => (key === 'ingress' ? 'Ingress' : 'Egress'));
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: { name, namespace: 'default' },
    spec: { podSelector: { matchLabels: labels }, policyTypes, ...rules },
  };
}

/** Pods that never become ready. */
export const UNREADY = ['slow', 'crash', 'pending'];
