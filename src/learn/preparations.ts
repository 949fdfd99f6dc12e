import { DEFAULT_DELAY_MS } from '../cluster/faults.ts';
import { isReady } from '../controllers/pods.ts';
import { hasReason } from '../kube/client.ts';
import { type KubeObject, RESOURCES, type Resource } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { podsOf } from './checks.ts';
import { LEARN_NAMESPACE, type Preparation } from './lesson.ts';
import { type LessonCluster, readView } from './lesson-cluster.ts';

/** How long pods may take to become ready, and the namespace to disappear, on a slow machine. */
const PATIENCE_MS = 120_000;
const POLL_MS = 250;

/** Prepares the objects of lessons. */
export interface Preparations {
  /** Waits until something can be read; `what`: says in an error what did not happen. */
  until<T>(read: () => Promise<T | null>, what: string): Promise<T>;
  createIfMissing<T extends KubeObject>(resource: Resource<T>, object: T): Promise<void>;
  carryOut(preparation: Preparation): Promise<void>;
  /** Waits for the pods that the lesson needs, so that its commands work at once. */
  awaitPods(preparations: readonly Preparation[]): Promise<boolean>;
}

export function createPreparations(cluster: LessonCluster & { readonly clock: Clock }): Preparations {
  const { access, client, clock } = cluster;

  async function until<T>(read: () => Promise<T | null>, what: string): Promise<T> {
    for (const end = clock.now() + PATIENCE_MS; ; await pause(clock, POLL_MS)) {
      const value = await read();
      if (value !== null) return value;
      if (clock.now() > end) {
        const text = `${what} within ${PATIENCE_MS / 1000} seconds`;
        throw new FairleadError(text, {
          op: 'prepare the lesson',
          code: 'ETIMEDOUT',
          hint: `kubectl -n ${LEARN_NAMESPACE} get pods,events`,
        });
      }
    }
  }

  async function createIfMissing<T extends KubeObject>(resource: Resource<T>, object: T): Promise<void> {
    try {
      await client.create(resource, object, {
        ...(object.metadata?.namespace ? { namespace: object.metadata.namespace } : {}),
      });
    } catch (error) {
      if (!hasReason(error, 'AlreadyExists')) throw error;
    }
  }

  async function carryOut(preparation: Preparation): Promise<void> {
    switch (preparation.kind) {
      case 'create':
        await createIfMissing(preparation.resource, preparation.object);
        break;
      case 'patch': {
        const { resource, name, patch } = preparation;
        await client.patch(resource, name, 'strategic', patch, { namespace: LEARN_NAMESPACE });
        break;
      }
      case 'silence': {
        const [pod] = podsOf(await readView(cluster, []), preparation.app);
        const target = `${LEARN_NAMESPACE}/${pod?.metadata?.name ?? preparation.app}`;
        await access.faults.plant({ kind: 'silent', target, delayMs: DEFAULT_DELAY_MS });
      }
    }
  }

  const awaitPods = (preparations: readonly Preparation[]) =>
    until(async () => {
      const view = await readView(cluster, []);
      const isThere = preparations.every((one) => {
        if (one.kind !== 'create') return true;
        const app = one.object.metadata?.name ?? '';
        if (one.resource === RESOURCES.pods) return podsOf(view, app).some(isReady);
        if (one.resource !== RESOURCES.deployments) return true;
        const wanted = view.deployments.find(({ metadata }) => metadata?.name === app)?.spec?.replicas ?? 1;
        return podsOf(view, app).filter(isReady).length >= wanted;
      });
      return isThere ? true : null;
    }, 'the pods of the lesson did not become ready');

  return { until, createIfMissing, carryOut, awaitPods };
}
