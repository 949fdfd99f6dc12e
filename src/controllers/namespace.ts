import { hasReason } from '../kube/client.ts';
import { timestamp } from '../kube/timestamp.ts';
import { type Namespace, RESOURCES } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue } from './context.ts';
import { type ServedKind, servedKinds } from './discovery.ts';

const FINALIZER = 'kubernetes';

/** The remaining content of a namespace that is being deleted: the number of objects of each kind, and errors. */
export interface NamespaceContent {
  readonly counts: ReadonlyMap<string, number>;
  /** Finalizers that block deletion, with the number of objects. */
  readonly finalizers: ReadonlyMap<string, number>;
  readonly failure: string | null;
}

/**
 * Builds the conditions that explain why a namespace is not deleted yet (upstream's NamespaceConditionUpdater). Pure.
 */
export function namespaceConditions(namespace: Namespace, rest: NamespaceContent, now: number) {
  const list = (counts: ReadonlyMap<string, number>, unit: string) =>
    [...counts].map(([name, count]) => `${name} ${unit} ${count} resource instances`).join(', ');
  const rows = [
    [
      'NamespaceDeletionContentFailure',
      rest.failure !== null,
      'ContentDeletionFailed',
      rest.failure ?? '',
      'ContentDeleted',
      'All content successfully deleted, may be waiting on finalization',
    ],
    [
      'NamespaceContentRemaining',
      rest.counts.size > 0,
      'SomeResourcesRemain',
      `Some resources are remaining: ${list(rest.counts, 'has')}`,
      'ContentRemoved',
      'All content successfully removed',
    ],
    [
      'NamespaceFinalizersRemaining',
      rest.finalizers.size > 0,
      'SomeFinalizersRemain',
      `Some content in the namespace has finalizers remaining: ${list(rest.finalizers, 'in')}`,
      'ContentHasNoFinalizers',
      'All content-preserving finalizers finished',
    ],
  ] as const;
  return rows.map(([type, bad, badReason, badMessage, goodReason, goodMessage]) => {
    const status = bad ? 'True' : 'False';
    const before = namespace.status?.conditions?.find((condition) => condition.type === type);
    return {
      type,
      status,
      reason: bad ? badReason : goodReason,
      message: bad ? badMessage : goodMessage,
      lastTransitionTime:
        before?.status === status ? (before.lastTransitionTime ?? timestamp(now)) : timestamp(now),
    };
  });
}

const isPods = ({ group, plural }: ServedKind) => group === '' && plural === 'pods';

/** Deletes the content of namespaces that are being deleted, then removes their finalizer. */
export function startNamespaces(context: ControllerContext): void {
  const { client, caches, clock, signal } = context;
  const { namespaces, pods } = caches;

  const empty = async (namespace: string): Promise<NamespaceContent> => {
    const counts = new Map<string, number>();
    const finalizers = new Map<string, number>();
    const failures: string[] = [];
    const resources = (await servedKinds(client, signal, 'fail')).filter(
      ({ namespaced, verbs }) => namespaced && verbs.includes('list') && verbs.includes('deletecollection'),
    );
    const emptyOf = async (resource: ServedKind): Promise<void> => {
      const kind = resource.group ? `${resource.plural}.${resource.group}` : resource.plural;
      try {
        let { items } = await client.list(resource, { namespace, signal });
        if (items.length === 0) return;
        await client.deleteCollection(resource, { namespace, propagationPolicy: 'Background', signal });
        items = (await client.list(resource, { namespace, signal })).items;
        if (items.length > 0) counts.set(`${kind}.`, items.length);
        for (const item of items) {
          for (const finalizer of item.metadata?.finalizers ?? []) {
            finalizers.set(finalizer, (finalizers.get(finalizer) ?? 0) + 1);
          }
        }
      } catch (error) {
        // Kinds that a server lists but does not serve.
        if (hasReason(error, 'NotFound', 'MethodNotAllowed')) return;
        failures.push(`${kind}: ${messageOf(error)}`);
      }
    };
    // Pods end first: until then they may need the objects that protect and configure them, such as NetworkPolicies
    // (KEP-5080).
    const [podKinds, others] = [resources.filter(isPods), resources.filter((one) => !isPods(one))];
    await all(podKinds.map(emptyOf));
    if (counts.size === 0 && failures.length === 0) await all(others.map(emptyOf));
    return { counts, finalizers, failure: failures.length > 0 ? failures.sort().join('; ') : null };
  };

  const queue = controllerQueue(context, 'namespace', async (name) => {
    const namespace = namespaces.get(undefined, name);
    if (!namespace || namespace.metadata?.deletionTimestamp === undefined) return;
    const held = namespace.spec?.finalizers ?? [];
    if (!held.includes(FINALIZER)) return;
    const rest = await empty(name);
    if (rest.counts.size === 0 && rest.failure === null) {
      const finalizers = held.filter((finalizer) => finalizer !== FINALIZER);
      const object = { ...namespace, spec: { ...namespace.spec, finalizers } };
      await client.update(RESOURCES.namespaces, object, { subresource: 'finalize', signal });
      return;
    }
    const conditions = namespaceConditions(namespace, rest, clock.now());
    const status = { ...namespace.status, phase: 'Terminating', conditions };
    if (!same(status, namespace.status)) await namespaces.updateStatus({ ...namespace, status });
    // The last pod's end triggers an event; kinds that are not followed here are checked again.
    queue.addAfter(name, 1000);
  });
  namespaces.informer.handle({
    onAdd: (namespace) => queue.add(namespace.metadata?.name ?? ''),
    onUpdate: (namespace) => queue.add(namespace.metadata?.name ?? ''),
  });
  pods.informer.handle({
    onDelete(pod) {
      const name = pod.metadata?.namespace ?? '';
      if (namespaces.get(undefined, name)?.metadata?.deletionTimestamp === undefined) return;
      if (pods.inNamespace(name).length === 0) queue.add(name);
    },
  });
}
