import type { Mode } from '../../src/dataplane/dataplane.ts';
import type { Answer } from '../../src/trace/outcome.ts';
import { combinations } from './pairwise.ts';

/** Where a client is, and how it names a Service. */
export const ORIGINS = ['pod', 'node', 'outside'] as const;
export type Origin = (typeof ORIGINS)[number];

/** What happens to a packet that enters the Service rules of node-1. */
export const OUTCOMES = [
  /** An endpoint on node-1 answers. */
  'same node',
  /** An endpoint on node-2 answers. */
  'other node',
  /** Nothing listens at the port of the endpoint. */
  'refused',
  /** The Service has no endpoints. */
  'rejected',
  /** The Service's traffic policy is Local, and its endpoint on node-2. */
  'dropped',
  /** The pod of the endpoint gets no packets. */
  'unanswered',
  /** No pod has the address of the endpoint, which is in the pod network of node-1. */
  'no pod here',
  /** The same on node-2. */
  'no pod there',
  /** A network policy isolates the pod of the endpoint. */
  'policy',
] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** A packet to trace: to a Service of its own, so that its ports tell it from all others. */
export interface MatrixRow {
  readonly name: string;
  readonly origin: Origin;
  readonly outcome: Outcome;
  readonly family: 4 | 6;
  readonly protocol: 'TCP' | 'UDP';
  readonly service: MatrixService;
}

interface MatrixService {
  readonly name: string;
  readonly origin: Origin;
  readonly outcome: Outcome;
  readonly port: number;
  readonly targetPort: number;
  readonly nodePort: number;
}

const SERVICES: readonly MatrixService[] = ORIGINS.flatMap((origin, i) =>
  OUTCOMES.map((outcome, j) => {
    const number = i * OUTCOMES.length + j;
    return {
      name: `${outcome.replaceAll(' ', '-')}-${origin}`,
      origin,
      outcome,
      // Ports that no client gets.
      port: 500 + number,
      targetPort: 600 + number,
      nodePort: 31000 + number,
    };
  }),
);

const FACTORS = { origin: ORIGINS, outcome: OUTCOMES, protocol: ['TCP', 'UDP'], family: [4, 6] } as const;

/**
 * Returns the rows of a mode: each origin with each outcome, and each protocol and family with each of both. A protocol or
 * family has no part of its own in the way of a packet besides these pairs. `rotation`: other rows for another mode.
 */
export function matrixRows(rotation: number): MatrixRow[] {
  return combinations<Pick<MatrixRow, 'origin' | 'outcome' | 'protocol' | 'family'>>(
    FACTORS,
    rotation,
  ).flatMap(({ origin, outcome, protocol, family }) =>
    SERVICES.filter((one) => one.origin === origin && one.outcome === outcome).map((service) => ({
      name: `${origin}, ${outcome}, ${protocol}, IPv${family}`,
      ...{ origin, outcome, family, protocol, service },
    })),
  );
}

/** The ports of a Service. */
export const portsOf = ({ port, targetPort, nodePort }: MatrixService) => [port, targetPort, nodePort];

/** The ports of all Services. */
export const ALL_PORTS: readonly number[] = SERVICES.flatMap(portsOf);

/** Returns what comes back to the client of a row. */
export function expectedAnswer({ outcome, protocol }: MatrixRow, mode: Mode): Answer['kind'] {
  const isProxied = mode === 'userspace' && outcome !== 'rejected' && ANSWERS[outcome] !== 'answered';
  if (!isProxied || outcome === 'dropped' || outcome === 'policy') return ANSWERS[outcome];
  // The proxy has taken the packet before it sends one of its own.
  return protocol === 'TCP' ? 'refused' : 'nothing';
}

const ANSWERS: Readonly<Record<Outcome, Answer['kind']>> = {
  'same node': 'answered',
  'other node': 'answered',
  refused: 'refused',
  rejected: 'refused',
  dropped: 'nothing',
  unanswered: 'nothing',
  'no pod here': 'unreachable',
  'no pod there': 'unreachable',
  policy: 'nothing',
};

type Json = Readonly<Record<string, unknown>>;

export const SILENT_POD = 'silent';

/** The pod and node of the endpoints of an outcome; null: there is no pod. */
const SERVERS: Readonly<Record<Outcome, string | null>> = {
  'same node': 'near',
  'other node': 'far',
  refused: 'far',
  rejected: null,
  dropped: 'far',
  unanswered: SILENT_POD,
  'no pod here': null,
  'no pod there': null,
  policy: 'guarded',
};
const NODES: Readonly<Record<string, string>> = { near: 'node-1' };

/** Answers TCP and UDP at these ports. */
const serverProgram = (ports: readonly number[]) => `
for (const port of ${JSON.stringify(ports)}) {
  require('node:net').createServer((socket) => socket.on('error', () => {}).end('hello')).listen(port, '::');
  const socket = require('node:dgram').createSocket('udp6');
  socket.on('message', (data, { address, port }) => socket.send('hello', port, address)).bind(port, '::');
}`;

function pod(name: string, node: string, program: string): Json {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: { app: name } },
    spec: {
      nodeSelector: { 'kubernetes.io/hostname': node },
      terminationGracePeriodSeconds: 0,
      containers: [{ name: 'main', image: 'fairlead', command: ['/opt/fairlead/node', '-e', program] }],
    },
  };
}

/** Addresses that no pod has, one per family. */
export interface FreeAddresses {
  readonly here: readonly string[];
  readonly there: readonly string[];
}

function objectsOf(
  { name, origin, outcome, port, targetPort, nodePort }: MatrixService,
  free: FreeAddresses,
): Json[] {
  const server = SERVERS[outcome];
  const addresses = outcome === 'no pod here' ? free.here : outcome === 'no pod there' ? free.there : null;
  const isOutside = origin === 'outside';
  const local = isOutside ? 'externalTrafficPolicy' : 'internalTrafficPolicy';
  const ports = (['TCP', 'UDP'] as const).map((protocol) => ({
    ...{ name: protocol.toLowerCase(), protocol, port, targetPort },
    ...(isOutside ? { nodePort } : {}),
  }));
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, annotations: { 'fairlead.dev/failover': 'disabled' } },
    spec: {
      type: isOutside ? 'NodePort' : 'ClusterIP',
      ipFamilyPolicy: 'RequireDualStack',
      ports,
      ...(addresses ? {} : { selector: { app: server ?? 'none' } }),
      ...(outcome === 'dropped' ? { [local]: 'Local' } : {}),
    },
  };
  return [service, ...(addresses ?? []).map((address) => sliceOf(name, address, targetPort))];
}

function sliceOf(service: string, address: string, port: number): Json {
  const addressType = address.includes(':') ? 'IPv6' : 'IPv4';
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: `${service}-${addressType.toLowerCase()}`,
      namespace: 'default',
      labels: { 'kubernetes.io/service-name': service },
    },
    addressType,
    ports: (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port })),
    endpoints: [{ addresses: [address], conditions: { ready: true } }],
  };
}

/** Returns the objects of all rows. */
export function matrixObjects(free: FreeAddresses): Json[] {
  const listened = new Map<string, number[]>();
  for (const { outcome, targetPort } of SERVICES) {
    const server = SERVERS[outcome];
    if (server === null) continue;
    const ports = listened.get(server) ?? [];
    listened.set(server, ports);
    if (outcome !== 'refused') ports.push(targetPort);
  }
  return [
    pod('client', 'node-1', 'setInterval(() => {}, 1e9)'),
    ...[...listened].map(([name, ports]) => pod(name, NODES[name] ?? 'node-2', serverProgram(ports))),
    ...SERVICES.flatMap((one) => objectsOf(one, free)),
    {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'guarded', namespace: 'default' },
      spec: { podSelector: { matchLabels: { app: 'guarded' } }, policyTypes: ['Ingress'] },
    },
  ];
}

/** The end of a row's packet. `nodeAddress`: of node-1 in the row's family. */
export function targetOf({ service, protocol }: MatrixRow, nodeAddress: string): string {
  const { name, port, nodePort, origin } = service;
  if (origin !== 'outside') return `svc/${name}:${port}/${protocol}`;
  return `${nodeAddress.includes(':') ? `[${nodeAddress}]` : nodeAddress}:${nodePort}/${protocol}`;
}

/** The client of a row, as `fairlead trace` takes it, and the place where it is. */
export const CLIENTS: Readonly<Record<Origin, { readonly from: string; readonly place: string }>> = {
  pod: { from: 'client', place: 'pod default/client' },
  node: { from: 'node/node-1', place: 'node-1' },
  outside: { from: 'outside', place: 'outside' },
};
