/** A cluster of two nodes with Services of every kind, as `explain` reads it. */
import type { EndpointSlice, Node, Pod, Service } from '../../kube/types.ts';
import { compile } from '../../service/compile.ts';
import type { ServiceMap } from '../../service/model.ts';
import { testNode } from '../../service/testing/test-node.ts';
import { explain } from '../explain.ts';
import { podIndex } from '../explain-places.ts';
import type { ExplainView } from '../explain-view.ts';
import type { EntryRequest } from '../fact-requests.ts';
import type { Facts, ListeningSocket, NameTry } from '../facts.ts';

type Ports = NonNullable<NonNullable<Service['spec']>['ports']>;

export function service(
  name: string,
  clusterIP: string,
  spec: Partial<NonNullable<Service['spec']>> = {},
  ip?: string,
): Service {
  return {
    metadata: { namespace: 'shop', name },
    spec: {
      type: 'ClusterIP',
      clusterIP,
      clusterIPs: [clusterIP],
      selector: { app: name },
      ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }],
      ...spec,
    },
    status: { loadBalancer: ip ? { ingress: [{ ip }] } : {} },
  };
}

export function pod(
  name: string,
  ip: string,
  node: string,
  change: { labels?: object; ready?: boolean; spec?: object; status?: object } = {},
): Pod {
  const { labels = { app: name.split('-')[0] }, ready = true, spec, status } = change;
  return {
    metadata: { namespace: 'shop', name, labels: labels as Record<string, string> },
    spec: {
      nodeName: node,
      containers: [{ name: 'main', image: 'host', ports: [{ name: 'web', containerPort: 8080 }], ...spec }],
    },
    status: {
      phase: 'Running',
      podIP: ip,
      podIPs: [{ ip }],
      conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
      containerStatuses: [
        { name: 'main', image: 'host', imageID: '', ready, restartCount: 0, state: { running: {} } },
      ],
      ...status,
    },
  };
}

export function slice(
  owner: string,
  endpoints: readonly [ip: string, node: string, pod: string, ready?: boolean][],
): EndpointSlice {
  return {
    metadata: { namespace: 'shop', name: `${owner}-x`, labels: { 'kubernetes.io/service-name': owner } },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: endpoints.map(([ip, nodeName, name, ready = true]) => ({
      addresses: [ip],
      nodeName,
      conditions: { ready, serving: ready, terminating: false },
      targetRef: { kind: 'Pod', namespace: 'shop', name },
    })),
  };
}

export const ports = (...list: Ports) => ({ ports: list });
export const SERVICES: Service[] = [
  service(
    'web',
    '10.96.0.1',
    {
      type: 'LoadBalancer',
      ...ports(
        { name: 'http', port: 80, targetPort: 8080, nodePort: 30_080 },
        { name: 'tls', port: 443, targetPort: 8443 },
      ),
      loadBalancerSourceRanges: ['198.51.100.0/24'],
    },
    '203.0.113.1',
  ),
  service(
    'local',
    '10.96.0.2',
    {
      type: 'LoadBalancer',
      externalTrafficPolicy: 'Local',
      selector: { app: 'web' },
      ...ports({ name: 'http', port: 80, targetPort: 8080, nodePort: 30_082 }),
    },
    '203.0.113.2',
  ),
  service('inside', '10.96.0.3', { internalTrafficPolicy: 'Local', selector: { app: 'far' } }),
  service('typo', '10.96.0.4', { selector: { app: 'webb', tier: 'x' } }),
  service('slow', '10.96.0.5'),
  service('named', '10.96.0.6', {
    selector: { app: 'web' },
    ...ports({ name: 'http', port: 80, targetPort: 'http' }),
  }),
  service('bare', '10.96.0.7', { selector: {} }),
  service('crash', '10.96.0.8'),
  service('pending', '10.96.0.10', { type: 'LoadBalancer' }),
  service('near', '10.96.0.12', {
    type: 'NodePort',
    externalTrafficPolicy: 'Local',
    selector: { app: 'far' },
    ...ports({ name: 'http', port: 80, targetPort: 8080, nodePort: 30_084 }),
  }),
  service('given', '10.96.0.13', { externalIPs: ['198.18.0.7'], selector: { app: 'web' } }),
  service('sticky', '10.96.0.11', { selector: { app: 'web' }, sessionAffinity: 'ClientIP' }),
];
export const PODS: Pod[] = [
  pod('client-1', '10.244.1.9', 'node-1'),
  pod('web-1', '10.244.1.2', 'node-1', { labels: { app: 'web', tier: 'x' } }),
  pod('web-2', '10.244.2.2', 'node-2', { labels: { app: 'web', tier: 'y' } }),
  pod('far-1', '10.244.2.3', 'node-2'),
  pod('slow-1', '10.244.2.4', 'node-2', {
    ready: false,
    spec: { readinessProbe: { httpGet: { port: 8080, path: '/healthz' } } },
  }),
  pod('crash-1', '10.244.2.5', 'node-2', {
    ready: false,
    status: {
      containerStatuses: [
        {
          name: 'main',
          image: 'host',
          imageID: '',
          ready: false,
          restartCount: 3,
          state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off 40s' } },
        },
      ],
    },
  }),
];
export const WEB: [string, string, string][] = [
  ['10.244.1.2', 'node-1', 'web-1'],
  ['10.244.2.2', 'node-2', 'web-2'],
];
export const SLICES: EndpointSlice[] = [
  slice('web', WEB),
  slice('local', [['10.244.2.2', 'node-2', 'web-2']]),
  slice('inside', [['10.244.2.3', 'node-2', 'far-1']]),
  slice('slow', [['10.244.2.4', 'node-2', 'slow-1', false]]),
  slice('near', [['10.244.2.3', 'node-2', 'far-1']]),
  slice('given', WEB),
  slice('sticky', WEB),
];
export const NODES: Node[] = ['1', '2'].map((number) => ({
  metadata: { name: `node-${number}` },
  status: { addresses: [{ type: 'InternalIP', address: `192.168.0.${number}` }] },
}));

export function view(change: Partial<ExplainView> = {}): ExplainView {
  const maps = new Map<string, ServiceMap>();
  for (const number of ['1', '2']) {
    const node = testNode({ name: `node-${number}`, ipv4: `192.168.0.${number}`, ipv6: null });
    maps.set(node.name, compile({ node, services: SERVICES, slices: SLICES }));
  }
  const names: Record<string, string[]> = { 'web.shop': ['10.96.0.1'], 'six.example': ['2001:db8::1'] };
  // As the agent of the other node answers.
  const entryOf = ({ node, source, destination, port, protocol }: Omit<EntryRequest, 'kind'>) =>
    explain(scene, { from: source, to: `${destination}:${port}/${protocol}`, family: null, entry: node });
  const scene: ExplainView = {
    services: () => SERVICES,
    slices: () => SLICES,
    pods: () => PODS,
    nodes: () => NODES,
    map: (node) => maps.get(node) ?? null,
    mode: () => 'nftables',
    locate: (_, frontend) => [{ object: `map svc ${frontend.address}`, effect: 'the map sends it on' }],
    facts: knownFactsOf(names, { entry: (packet) => entryOf(packet) }),
    hosts: [{ name: 'outside', addresses: ['198.51.100.7'] }],
    entryNode: (address) => (address.startsWith('203.0.113.') ? 'node-1' : null),
    podAt: (address) => podIndex(scene.pods()).get(address) ?? null,
    ...change,
  };
  return scene;
}

export const ask = (scene: ExplainView, from: string, to: string) =>
  explain(scene, { from, to, family: null });

/** Pods' servers listen on their ports; every address has a route by its link, but the documentation's 192.0.2.0/24. */
export function knownFactsOf(
  names: Readonly<Record<string, readonly string[]>>,
  change: Partial<Facts> = {},
): Facts {
  return {
    sockets: () => LISTENING,
    fault: () => false,
    route: (place, destination) => {
      if (destination.startsWith('192.0.2.')) return null;
      const source = place.kind === 'node' ? `192.168.0.${place.node.slice(-1)}` : null;
      return {
        type: 'unicast',
        via: destination === '8.8.8.8' ? '192.168.0.254' : null,
        source,
        masqueradeSource: source,
      };
    },
    names: (_, name) => ({
      servers: ['10.96.0.9'],
      search: ['shop.svc.cluster.local'],
      ndots: 5,
      fromHosts: false,
      tries: [tryOf(name, names[name] ?? [])],
      addresses: names[name] ?? [],
    }),
    entry: () => undefined,
    missing: [],
    failures: [],
    ...change,
  };
}

export const tryOf = (name: string, addresses: readonly string[]): NameTry => {
  const result = addresses.length > 0 ? 'NOERROR' : 'NXDOMAIN';
  return { name: `${name}.svc.cluster.local`, server: '10.96.0.9', result, aliases: [], addresses };
};
export const LISTENING: readonly ListeningSocket[] = [8080, 53, 8085].map((port) => ({
  address: '::',
  port,
  v6Only: false,
  isFull: false,
}));
