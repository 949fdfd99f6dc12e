import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import type { ClusterAccess } from '../cluster/cluster-access.ts';
import type { Client } from '../kube/client.ts';
import { RESOURCES } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Explanation } from '../observe/explanation.ts';
import { LEARN_NAMESPACE, type LessonView, type Question } from './lesson.ts';

/** The cluster on which a lesson is taken. */
export interface LessonCluster {
  readonly access: ClusterAccess;
  /** A client with the credentials of `access`. */
  readonly client: Client;
}

export async function readNodes({ access, client }: LessonCluster): Promise<LessonView['nodes']> {
  const { items } = await client.list(RESOURCES.nodes);
  return items.map(({ metadata, status }) => ({
    name: metadata?.name ?? '',
    address: (status?.addresses ?? []).find(({ type }) => type === 'InternalIP')?.address ?? '',
    mode:
      (metadata?.annotations as Record<string, string> | undefined)?.[MODE_ANNOTATION] ??
      access.report.state.mode,
  }));
}

export async function readView(
  { access, client }: LessonCluster,
  asks: readonly Question[],
): Promise<LessonView> {
  const options = { namespace: LEARN_NAMESPACE };
  const [pods, deployments, services, policies, nodes, faults] = await Promise.all([
    client.list(RESOURCES.pods, options).then(({ items }) => items),
    client.list(RESOURCES.deployments, options).then(({ items }) => items),
    client.list(RESOURCES.services, options).then(({ items }) => items),
    client.list(RESOURCES.networkPolicies, options).then(({ items }) => items),
    readNodes({ access, client }),
    access.faults.list(),
  ]);
  const explained = new Map<string, Explanation>();
  for (const question of asks) {
    try {
      explained.set(keyOf(question), await access.explain({ ...question, family: null }));
    } catch (error) {
      // An object of the question may not exist yet.
      if (!(error instanceof FairleadError)) throw error;
    }
  }
  return {
    pods: pods.filter(({ metadata }) => !metadata?.deletionTimestamp),
    deployments,
    services,
    policies,
    nodes,
    faults,
    explained: (question) => explained.get(keyOf(question)) ?? null,
  };
}

const keyOf = ({ from, to }: Question): string => `${from} ${to}`;
