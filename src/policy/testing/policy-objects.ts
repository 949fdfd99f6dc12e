import type { Namespace, NetworkPolicy, Node, Pod } from '../../kube/types.ts';
import { readClusterPolicy } from '../cluster-policy-reader.ts';
import { clusterPolicyRows } from '../cluster-policy-rows.ts';
import type { RowClusterPolicy } from '../policy-row.ts';
import { labels, type RowScene } from '../policy-row.ts';
import { policyRows, ROW_NAMESPACES, ROW_PODS } from '../policy-rows.ts';
import type { PolicyTable } from '../policy-table.ts';

export { ALL, withLabels } from '../policy-row.ts';

type Spec = NonNullable<NetworkPolicy['spec']>;

/** Returns a NetworkPolicy, by default in namespace "x". */
export const policy = (name: string, spec: Spec, namespace = 'x'): NetworkPolicy => ({
  metadata: { name, namespace },
  spec,
});

export const namespace = (name: string, more = ''): Namespace => ({
  metadata: { name, labels: { 'kubernetes.io/metadata.name': name, ...labels(more) } },
});

export interface TestPod {
  /** "namespace/name" */
  readonly key: string;
  readonly labels?: string;
  readonly node?: string;
  readonly ips: readonly string[];
  /** "http=80/TCP": ports with names. */
  readonly ports?: readonly string[];
  readonly phase?: string;
  readonly hostNetwork?: boolean;
  readonly deleted?: boolean;
}

export function pod(one: TestPod): Pod {
  const [namespace = '', name = ''] = one.key.split('/');
  return {
    metadata: {
      name,
      namespace,
      uid: `uid-${one.key}`,
      labels: labels(one.labels ?? ''),
      ...(one.deleted ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}),
    },
    spec: {
      nodeName: one.node ?? 'node-1',
      hostNetwork: one.hostNetwork ?? false,
      containers: [
        {
          name: 'main',
          ports: (one.ports ?? []).map((text) => {
            const [name = '', port = '', protocol = 'TCP'] = text.split(/[=/]/);
            return { name, protocol, containerPort: Number(port) };
          }),
        },
      ],
    },
    status: { phase: one.phase ?? 'Running', podIPs: one.ips.map((ip) => ({ ip })) },
  };
}

export function fill(
  table: PolicyTable,
  objects: {
    readonly namespaces: readonly Namespace[];
    readonly pods: readonly Pod[];
    readonly policies: readonly NetworkPolicy[];
    readonly clusterPolicies?: readonly RowClusterPolicy[] | undefined;
    readonly nodes?: readonly Node[];
  },
): void {
  for (const one of objects.namespaces) table.setNamespace(one);
  for (const one of objects.pods) table.setPod(one);
  for (const one of objects.nodes ?? []) table.setNode(one);
  for (const one of objects.policies) table.setPolicy(one);
  for (const { kind, object } of objects.clusterPolicies ?? [])
    table.setClusterPolicy(readClusterPolicy(kind, object).policy);
}

/** The addresses of the rows' pods in tests. */
const IPS: Readonly<Record<string, readonly string[]>> = {
  'x/a': ['10.244.1.11', 'fd00:10:244:1::11'],
  'x/b': ['10.244.1.12', 'fd00:10:244:1::12'],
  'y/a': ['10.244.1.13', 'fd00:10:244:1::13'],
  'z/c': ['10.244.2.14', 'fd00:10:244:2::14'],
};

const SCENE: RowScene = {
  namespace: (name) => name,
  node: (name) => name,
  podNetworks: ['10.244.0.0/16', 'fd00:10:244::/48'],
  farNetworks: ['10.244.2.0/24', 'fd00:10:244:2::/64'],
  outside: ['172.30.9.2', 'fd00:172:30:9::2'],
};

export const PODS: readonly TestPod[] = ROW_PODS.map((one) => ({ ...one, ips: IPS[one.key] ?? [] }));
export const NAMESPACES: readonly Namespace[] = Object.entries(ROW_NAMESPACES).map(([name, more]) =>
  namespace(name, more),
);
export const POLICY_ROWS = [...policyRows(SCENE), ...clusterPolicyRows(SCENE)];

/** Returns a node of the rows. */
export const node = (name: string, addresses: readonly string[]): Node => ({
  metadata: { name, labels: { 'kubernetes.io/hostname': name } },
  status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
});
