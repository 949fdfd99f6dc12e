import type { LabelSelector, Namespace, NetworkPolicy, Pod } from '../../kube/types.ts';
import type { PolicyTable } from '../policy-table.ts';

type Spec = NonNullable<NetworkPolicy['spec']>;

/** Returns a NetworkPolicy, by default in namespace "x". */
export const policy = (name: string, spec: Spec, namespace = 'x'): NetworkPolicy => ({
  metadata: { name, namespace },
  spec,
});

/** Returns "a=1,b=2" as labels. */
export const labels = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split(',')
      .filter((one) => one !== '')
      .map((one) => one.split('=') as [string, string]),
  );

export const withLabels = (text: string): LabelSelector => ({ matchLabels: labels(text) });
/** Selects all pods. */
export const ALL: LabelSelector = {};

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
  },
): void {
  for (const one of objects.namespaces) table.setNamespace(one);
  for (const one of objects.pods) table.setPod(one);
  for (const one of objects.policies) table.setPolicy(one);
}
