import type { Cluster } from './cluster.ts';

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

type Family = '4' | '6';
const FAMILIES: readonly Family[] = ['4', '6'];

/** Sends requests between the places of the rows. */
export interface PolicyTraffic {
  /** The URL of a row's `to`. */
  urlOf(to: string, family: Family): Promise<string>;
  /** Sends a request for each row in each family (default: both); returns those with an unexpected outcome. */
  wrongRows(rows: readonly Row[], families?: readonly Family[]): Promise<string[]>;
}

/** A denied packet needs a shorter timeout than one that must arrive. */
const TIMEOUT_MS = { allowed: 5000, denied: 1000 };

/** `isSlow`: on a machine where the requests of one place delay those of others. */
export function createPolicyTraffic(cluster: Cluster, { isSlow = false } = {}): PolicyTraffic {
  async function urlOf(to: string, family: Family): Promise<string> {
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
    // Not the name alone: the hosts file of the pod itself contains it.
    return what === 'udp' ? `udp://${name}.default:80` : `http://${name}.default`;
  }

  const urls = new Map<string, Promise<string>>();
  /** The pods and Services of the rows are not replaced, so that their addresses are looked up once. */
  function knownUrlOf(to: string, family: Family): Promise<string> {
    const key = `${to} ${family}`;
    const url = urls.get(key) ?? urlOf(to, family);
    urls.set(key, url);
    return url;
  }

  async function commandOf({ to, isAllowed }: Row, family: Family): Promise<string> {
    const url = await knownUrlOf(to, family);
    const options = /^(?:http|udp):\/\/[a-z]/.test(url) ? `-${family}` : '';
    const timeout = isAllowed ? (isSlow ? 4 : 1) * TIMEOUT_MS.allowed : TIMEOUT_MS.denied;
    // One line, as each request of a place prints into the same output.
    return `fairlead request '${url}' -o json --timeout=${timeout} ${options} | tr -d '\\n'`;
  }

  /** Sends requests from one place, all at once, with one command: to start one in a pod takes longer than a request. */
  async function wrongRowsFrom(
    place: string,
    requests: readonly { readonly row: Row; readonly family: Family }[],
  ): Promise<string[]> {
    const commands = await Promise.all(requests.map(({ row, family }) => commandOf(row, family)));
    const script = [...commands.map((command, index) => `echo ${index} "$(${command})" &`), 'wait'].join(
      '\n',
    );
    const { out, error } = await cluster.fairlead('exec', place, '--', 'sh', '-c', script);
    const outputs = new Map(
      out.split('\n').map((line) => [Number.parseInt(line, 10), line.replace(/^\d+ /, '')]),
    );
    return requests.flatMap(({ row, family }, index) => {
      const output = outputs.get(index) ?? '';
      if (output === '') throw new Error(`${commands[index]} from ${place}: ${out}${error}`);
      const { answers } = JSON.parse(output) as { readonly answers: Readonly<Record<string, number>> };
      const isAnswered = Object.keys(answers).length > 0;
      return isAnswered === row.isAllowed ? [] : [`${row.from} → ${row.to}, IPv${family}: ${isAnswered}`];
    });
  }

  async function wrongRows(rows: readonly Row[], families = FAMILIES): Promise<string[]> {
    const requests = families.flatMap((family) => rows.map((row) => ({ row, family })));
    const places = [...Map.groupBy(requests, ({ row }) => row.from)];
    if (!isSlow) {
      return (await Promise.all(places.map(([place, ofPlace]) => wrongRowsFrom(place, ofPlace)))).flat();
    }
    const wrong: string[] = [];
    for (const [place, ofPlace] of places) wrong.push(...(await wrongRowsFrom(place, ofPlace)));
    return wrong;
  }

  return { urlOf, wrongRows };
}
