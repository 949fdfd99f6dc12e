/** Builds the objects of the scenes that questions to `explain` are about. */

export type Json = Readonly<Record<string, unknown>>;

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
export interface PodFields {
  readonly namespace?: string;
  readonly node?: string;
  readonly labels?: Json;
  readonly spec?: Json;
  readonly container?: Json;
}

export function pod(name: string, command: readonly string[], fields: PodFields = {}): Json {
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
export const IMPATIENT = [
  { name: 'timeout', value: '1' },
  { name: 'attempts', value: '1' },
];
export const probe = (port: number) => ({ readinessProbe: { tcpSocket: { port }, periodSeconds: 1 } });
export const echo = (name: string, app: string, node: string, port = 8080, fields: PodFields = {}): Json =>
  pod(name, ['fairlead', 'echo', `--port=${port}`], {
    node,
    labels: { app },
    container: probe(port),
    ...fields,
  });
export const client = (name: string, fields: PodFields = {}): Json =>
  pod(name, ['sleep', 'infinity'], fields);
export const listenOn = (name: string, address: string, port = 8080) => [
  '/opt/fairlead/node',
  '-e',
  `require('node:http').createServer((request, answer) => answer.end('hello from ${name} (you are ' + request.socket.remoteAddress + ')')).listen(${port}, '${address}')`,
];

export function service(name: string, app: string | null, spec: Json = {}, metadata: Json = {}): Json {
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
            ...(name in NUMBERS
              ? { clusterIP: clusterIp(name), clusterIPs: [clusterIp(name), clusterIp6(name)] }
              : {}),
          }),
      ...spec,
    },
  };
}

export function slice(owner: string, address: string, port: number): Json {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: `${owner}-1`, namespace: 'default', labels: { 'kubernetes.io/service-name': owner } },
    addressType: 'IPv4',
    ports: [{ name: '', port, protocol: 'TCP' }],
    endpoints: [{ addresses: [address], conditions: { ready: true } }],
  };
}

export const nodePort = (number: number) => ({
  type: 'NodePort',
  ports: [{ port: 80, targetPort: 8080, nodePort: number }],
});

export function policy(name: string, labels: Json, rules: Json): Json {
  const policyTypes = Object.keys(rules).map((key) => (key === 'ingress' ? 'Ingress' : 'Egress'));
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: { name, namespace: 'default' },
    spec: { podSelector: { matchLabels: labels }, policyTypes, ...rules },
  };
}
