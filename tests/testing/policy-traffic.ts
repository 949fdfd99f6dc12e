import type { Cluster } from './cluster.ts';
import type { Askers, Question } from './question-asker.ts';

/** Pods, Services and NetworkPolicies, and the expected reachability between them. */

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

type Family = Question['family'];
const FAMILIES: readonly Family[] = [4, 6];

/** Sends requests between the places of the rows. */
export interface PolicyTraffic {
  /** The place that a row's `to` names. */
  targetOf(to: string, family: Family): Promise<Target>;
  /** Sends a request for each row in each family (default: both); returns those with an unexpected outcome. */
  wrongRows(rows: readonly Row[], families?: readonly Family[]): Promise<string[]>;
}

type Target = Pick<Question, 'host' | 'port' | 'protocol'>;

/** A denied packet needs a shorter timeout than one that must arrive. */
const TIMEOUT_MS = { allowed: 5000, denied: 1000 };

/** `isSlow`: on a machine where the requests of one place delay those of others. */
export function createPolicyTraffic(
  cluster: () => Cluster,
  askers: Askers,
  { isSlow = false } = {},
): PolicyTraffic {
  async function targetOf(to: string, family: Family): Promise<Target> {
    const [, what = '', name = ''] = /^(?:(pod|udp|node port) )?(\S+)$/.exec(to) ?? [];
    const addressOf = (addresses: readonly string[] = []) =>
      addresses.find((one) => one.includes(':') === (family === 6)) ?? '';
    switch (what) {
      case 'pod': {
        const [found] = await cluster().pods(`name=${name}`);
        return { host: addressOf(found?.ips), port: 8080, protocol: 'tcp' };
      }
      case 'node port': {
        const path = 'jsonpath={.spec.ports[0].nodePort}';
        const port = Number(await cluster().ask('get', 'service', name, '-o', path));
        return { host: addressOf(cluster().state().nodes[0]?.addresses), port, protocol: 'tcp' };
      }
      default:
        // Not the name alone: the hosts file of the pod itself contains it.
        return { host: `${name}.default`, port: 80, protocol: what === 'udp' ? 'udp' : 'tcp' };
    }
  }

  const targets = new Map<string, Promise<Target>>();
  /** The pods and Services of the rows are not replaced, so that their addresses are looked up once. */
  function knownTargetOf(to: string, family: Family): Promise<Target> {
    const key = `${to} ${family}`;
    const target = targets.get(key) ?? targetOf(to, family);
    targets.set(key, target);
    return target;
  }

  async function wrongRow({ from, to, isAllowed }: Row, family: Family): Promise<string[]> {
    const target = await knownTargetOf(to, family);
    const patienceMs = isAllowed ? (isSlow ? 4 : 1) * TIMEOUT_MS.allowed : TIMEOUT_MS.denied;
    const [met] = await askers.in(from).ask({ ...target, family, count: 1, patienceMs });
    const isAnswered = met?.kind === 'answer';
    return isAnswered === isAllowed ? [] : [`${from} → ${to}, IPv${family}: ${JSON.stringify(met)}`];
  }

  async function wrongRows(rows: readonly Row[], families = FAMILIES): Promise<string[]> {
    const requests = families.flatMap((family) => rows.map((row) => ({ row, family })));
    const places = [...Map.groupBy(requests, ({ row }) => row.from).values()];
    const wrongFrom = async (ofPlace: typeof requests) =>
      (await Promise.all(ofPlace.map(({ row, family }) => wrongRow(row, family)))).flat();
    if (!isSlow) return (await Promise.all(places.map(wrongFrom))).flat();
    const wrong: string[] = [];
    for (const ofPlace of places) wrong.push(...(await wrongFrom(ofPlace)));
    return wrong;
  }

  return { targetOf, wrongRows };
}
