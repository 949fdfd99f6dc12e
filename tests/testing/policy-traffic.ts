import type { Cluster } from './cluster.ts';

/** Pods, Services and NetworkPolicies, and who of them reaches whom. */

/** A pod of the built-in image. */
export const pod = (name: string, node: string, labels: string, command: string) => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, labels: {name: ${name}, policy-traffic: "", ${labels}}}
spec:
  nodeName: ${node}
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: fairlead
      command: [${command}]
      ports: [{name: http, containerPort: 8080}]`;
const server = (
  name: string,
  node: string,
) => `${pod(name, node, 'role: server', 'fairlead, echo, --port=8080')}
---
apiVersion: v1
kind: Service
metadata: {name: ${name}, labels: {policy-traffic: ""}}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {name: ${name}}
  ports:
    - {name: http, port: 80, targetPort: http}
    - {name: udp, protocol: UDP, port: 80, targetPort: 8080}`;

export const MANIFEST = [
  server('near', 'node-1'),
  server('far', 'node-2'),
  pod('friend', 'node-1', 'role: friend', 'sleep, infinity'),
  pod('foe', 'node-1', 'role: foe', 'sleep, infinity'),
  pod('walled', 'node-1', 'role: friend, walled: "yes"', 'sleep, infinity'),
].join('\n---');

export const POLICIES = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: servers}
spec:
  podSelector: {matchLabels: {role: server}}
  policyTypes: [Ingress]
  ingress:
    - from: [{podSelector: {matchLabels: {role: friend}}}]
      ports: [{port: http}, {protocol: UDP, port: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: walled}
spec:
  podSelector: {matchLabels: {walled: "yes"}}
  policyTypes: [Egress]
  egress:
    - to: [{podSelector: {matchLabels: {name: near}}}]
    - to:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
          podSelector: {matchLabels: {k8s-app: kube-dns}}
      ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]`;

export interface Row {
  readonly from: string;
  /** The name of a Service, over TCP; "udp NAME": over UDP; "pod NAME": the pod itself; "node port NAME": on node-1. */
  readonly to: string;
  readonly isAllowed: boolean;
}

export const ROWS: readonly Row[] = [
  { from: 'friend', to: 'near', isAllowed: true },
  { from: 'friend', to: 'far', isAllowed: true },
  { from: 'friend', to: 'pod near', isAllowed: true },
  { from: 'friend', to: 'pod far', isAllowed: true },
  { from: 'foe', to: 'near', isAllowed: false },
  { from: 'foe', to: 'far', isAllowed: false },
  { from: 'foe', to: 'pod near', isAllowed: false },
  { from: 'foe', to: 'pod far', isAllowed: false },
  { from: 'walled', to: 'near', isAllowed: true },
  { from: 'walled', to: 'far', isAllowed: false },
  { from: 'walled', to: 'pod far', isAllowed: false },
  { from: 'friend', to: 'udp near', isAllowed: true },
  { from: 'friend', to: 'udp far', isAllowed: true },
  { from: 'foe', to: 'udp near', isAllowed: false },
  { from: 'foe', to: 'udp far', isAllowed: false },
  { from: 'walled', to: 'udp far', isAllowed: false },
  { from: 'near', to: 'near', isAllowed: true },
  { from: 'node/node-1', to: 'pod near', isAllowed: true },
  { from: 'outside', to: 'node port near', isAllowed: false },
];

/** Sends requests between the places of the rows. */
export interface PolicyTraffic {
  /** The URL of a row's `to`. */
  urlOf(to: string, family: '4' | '6'): Promise<string>;
  isAnswered(row: Row, family: '4' | '6'): Promise<boolean>;
  /** The rows that are not as they should be, in both families. */
  wrongRows(): Promise<string[]>;
}

/** A packet that is denied is not waited for as long as one that must arrive. */
const TIMEOUT_MS = { allowed: 5000, denied: 1000 };

/** `isSlow`: on a machine where requests that run at once keep each other waiting. */
export function createPolicyTraffic(cluster: Cluster, { isSlow = false } = {}): PolicyTraffic {
  async function urlOf(to: string, family: '4' | '6'): Promise<string> {
    const [, what = '', name = ''] = /^(?:(pod|udp|node port) )?(\S+)$/.exec(to) ?? [];
    const isOf = (address: string) => address.includes(':') === (family === '6');
    const host = (address = '') => (address.includes(':') ? `[${address}]` : address);
    if (what === 'pod') {
      const [found] = await cluster.pods(`name=${name}`);
      return `http://${host(found?.ips.find(isOf))}:8080`;
    }
    if (what === 'node port') {
      const port = await cluster.ask('get', 'service', name, '-o', 'jsonpath={.spec.ports[0].nodePort}');
      return `http://${host(cluster.state().nodes[0]?.addresses.find(isOf))}:${port}`;
    }
    // Not the name alone: the hosts file of the pod itself has that.
    return what === 'udp' ? `udp://${name}.default:80` : `http://${name}.default`;
  }

  async function isAnswered({ from, to, isAllowed }: Row, family: '4' | '6'): Promise<boolean> {
    const url = await urlOf(to, family);
    const options = /^(?:http|udp):\/\/[a-z]/.test(url) ? [`-${family}`] : [];
    const timeout = isAllowed ? (isSlow ? 4 : 1) * TIMEOUT_MS.allowed : TIMEOUT_MS.denied;
    const { answers } = await cluster.request(from, url, '--count=1', `--timeout=${timeout}`, ...options);
    return Object.keys(answers).length > 0;
  }

  async function wrongRow(row: Row, family: '4' | '6'): Promise<string[]> {
    const answered = await isAnswered(row, family);
    return answered === row.isAllowed ? [] : [`${row.from} → ${row.to}, IPv${family}: ${answered}`];
  }

  async function wrongRows(): Promise<string[]> {
    const rows = (['4', '6'] as const).flatMap((family) => ROWS.map((row) => ({ row, family })));
    if (!isSlow) return (await Promise.all(rows.map(({ row, family }) => wrongRow(row, family)))).flat();
    const wrong: string[] = [];
    for (const { row, family } of rows) wrong.push(...(await wrongRow(row, family)));
    return wrong;
  }

  return { urlOf, isAnswered, wrongRows };
}
