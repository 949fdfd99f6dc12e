import { timestamp } from '../../kube/timestamp.ts';
import type { Deployment, Node, Pod, ReplicaSet } from '../../kube/types.ts';

/** Objects for table tests, in short forms. */

export const NOW = Date.parse('2026-01-01T12:00:00Z');

/** "2026-01-01T11:59:50Z" for 10. */
export function secondsAgo(seconds: number): string {
  return timestamp(NOW - seconds * 1000);
}

export interface PodFields {
  readonly ready?: boolean;
  readonly readyFor?: number;
  readonly phase?: string;
  readonly node?: string;
  readonly ip?: string;
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
  readonly owner?: string;
  readonly ownerKind?: string;
  readonly deleting?: boolean;
  readonly age?: number;
  readonly restarts?: number;
  readonly spec?: Partial<NonNullable<Pod['spec']>>;
}

/** Builds a running, ready pod of the owner "owner" by default. */
export function pod(name: string, fields: PodFields = {}): Pod {
  const { ready = true, phase = 'Running', owner = 'owner', labels = { app: 'web' } } = fields;
  const node = fields.node ?? 'a';
  return {
    metadata: {
      name,
      namespace: 'default',
      uid: `uid of ${name}`,
      labels,
      ...(fields.annotations ? { annotations: fields.annotations } : {}),
      creationTimestamp: secondsAgo(fields.age ?? 100),
      ...(fields.deleting ? { deletionTimestamp: secondsAgo(1) } : {}),
      ...(owner === ''
        ? {}
        : {
            ownerReferences: [
              {
                apiVersion: 'apps/v1',
                kind: fields.ownerKind ?? 'ReplicaSet',
                name: owner,
                uid: owner,
                controller: true,
                blockOwnerDeletion: true,
              },
            ],
          }),
    },
    spec: {
      containers: [{ name: 'main', image: 'host' }],
      ...(node ? { nodeName: node } : {}),
      ...fields.spec,
    },
    status: {
      phase,
      ...(fields.ip ? { podIP: fields.ip, podIPs: fields.ip.split(' ').map((ip) => ({ ip })) } : {}),
      conditions: [
        {
          type: 'Ready',
          status: ready && phase === 'Running' ? 'True' : 'False',
          lastTransitionTime: secondsAgo(fields.readyFor ?? 60),
        },
      ],
      containerStatuses: [
        { name: 'main', image: 'host', imageID: '', ready, restartCount: fields.restarts ?? 0 },
      ],
    },
  };
}

export function node(
  name: string,
  fields: {
    labels?: Record<string, string>;
    ready?: 'True' | 'False' | 'Unknown' | null;
    taints?: NonNullable<Node['spec']>['taints'];
    unschedulable?: boolean;
    allocatable?: Record<string, string>;
    podCIDRs?: string[];
  } = {},
): Node {
  const { ready = 'True', taints, unschedulable, podCIDRs } = fields;
  return {
    metadata: { name, uid: `uid of ${name}`, labels: { 'kubernetes.io/hostname': name, ...fields.labels } },
    spec: {
      ...(taints ? { taints } : {}),
      ...(unschedulable ? { unschedulable } : {}),
      ...(podCIDRs ? { podCIDRs, podCIDR: podCIDRs[0] ?? '' } : {}),
    },
    status: {
      allocatable: fields.allocatable ?? { cpu: '4', memory: '8Gi', pods: '110' },
      ...(ready === null ? {} : { conditions: [{ type: 'Ready', status: ready }] }),
    },
  };
}

export function deployment(
  replicas: number,
  image: string,
  spec: Partial<NonNullable<Deployment['spec']>> = {},
): Deployment {
  return {
    metadata: { name: 'web', namespace: 'default', uid: 'web', generation: 1 },
    spec: {
      replicas,
      selector: { matchLabels: { app: 'web' } },
      template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'main', image }] } },
      ...spec,
    },
  };
}

/** Builds a ReplicaSet of the Deployment "web", with `available` of its `replicas` pods available. */
export function replicaSet(
  name: string,
  image: string,
  replicas: number,
  fields: {
    available?: number;
    revision?: number;
    annotations?: Record<string, string>;
    owner?: string;
    pods?: number;
  } = {},
): ReplicaSet {
  const { revision = 1, owner = 'web' } = fields;
  const labels = { app: 'web', 'pod-template-hash': name };
  const pods = fields.pods ?? replicas;
  return {
    metadata: {
      name: `web-${name}`,
      namespace: 'default',
      uid: name,
      generation: 1,
      labels,
      annotations: { 'deployment.kubernetes.io/revision': String(revision), ...fields.annotations },
      creationTimestamp: secondsAgo(1000 - revision),
      ...(owner === ''
        ? {}
        : {
            ownerReferences: [
              { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web', uid: owner, controller: true },
            ],
          }),
    },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [{ name: 'main', image }] } },
    },
    status: {
      replicas: pods,
      readyReplicas: fields.available ?? pods,
      availableReplicas: fields.available ?? pods,
      observedGeneration: 1,
    },
  };
}
