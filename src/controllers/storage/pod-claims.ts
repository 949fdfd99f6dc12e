import { keyOf, type PersistentVolumeClaim, type Pod, RESOURCES, splitKey } from '../../kube/types.ts';
import { all, type ControllerContext, controllerQueue, recorderFor } from '../context.ts';
import { controllerReference, isControlledBy } from '../ownership.ts';
import { isFinished } from '../pods.ts';
import { claimsOf, ephemeralClaimName } from './claims.ts';

const PROTECTION = 'kubernetes.io/pvc-protection';
const BY_CLAIM = 'claim';

/** Returns the missing claims of a pod's generic ephemeral volumes (KEP-1698). Pure. */
export function missingClaims(pod: Pod, existing: ReadonlySet<string>): PersistentVolumeClaim[] {
  return (pod.spec?.volumes ?? []).flatMap(({ name, ephemeral }) => {
    const template = ephemeral?.volumeClaimTemplate;
    const claimName = ephemeralClaimName(pod, name);
    if (!template || existing.has(claimName)) return [];
    const { labels, annotations } = template.metadata ?? {};
    return [
      {
        metadata: {
          name: claimName,
          namespace: pod.metadata?.namespace ?? '',
          ...(labels ? { labels } : {}),
          ...(annotations ? { annotations } : {}),
          ownerReferences: [controllerReference(pod, RESOURCES.pods)],
        },
        spec: template.spec,
      },
    ];
  });
}

/** Creates the claims of ephemeral volumes, and protects claims while pods use them (upstream's two controllers). */
export function startPodClaims(context: ControllerContext): void {
  const { pods, persistentVolumeClaims: claims } = context.caches;
  const events = recorderFor(context, 'ephemeral-volume-controller');
  pods.informer.addIndex(BY_CLAIM, (pod) =>
    claimsOf(pod).map(({ name }) => `${pod.metadata?.namespace}/${name}`),
  );
  const ephemeral = controllerQueue(context, 'ephemeral-volumes', async (key) => {
    const pod = pods.informer.get(key);
    if (!pod || pods.isDeleting(pod)) return;
    const { namespace = '' } = pod.metadata ?? {};
    const uses = claimsOf(pod).filter((use) => use.ephemeral);
    const existing = uses.flatMap(({ name }) => claims.get(namespace, name) ?? []);
    for (const claim of existing) {
      if (isControlledBy(claim, pod)) continue;
      const message = `PVC ${keyOf(claim)} was not created for pod ${key} (pod is not owner)`;
      events.event(pod, 'Warning', 'VolumeConflict', message, RESOURCES.pods);
    }
    const names = new Set(existing.map(({ metadata }) => metadata?.name ?? ''));
    await all(missingClaims(pod, names).map((claim) => claims.create(claim)));
  });
  const protection = controllerQueue(context, 'claim-protection', async (key) => {
    const { namespace, name } = splitKey(key);
    const claim = claims.get(namespace, name);
    if (claim?.metadata?.deletionTimestamp === undefined) return;
    const { uid, resourceVersion, finalizers = [] } = claim.metadata;
    if (!finalizers.includes(PROTECTION)) return;
    const users = pods.informer.byIndex(BY_CLAIM, key);
    if (users.some((pod) => pod.spec?.nodeName && !isFinished(pod))) return;
    const left = finalizers.filter((finalizer) => finalizer !== PROTECTION);
    await claims.patch(claim, 'merge', { metadata: { uid, resourceVersion, finalizers: left } });
  });
  const podChanged = (pod: Pod) => {
    const uses = claimsOf(pod);
    if (uses.some((use) => use.ephemeral)) ephemeral.add(keyOf(pod));
    for (const { name } of uses) protection.add(`${pod.metadata?.namespace}/${name}`);
  };
  pods.informer.handle({
    onAdd: podChanged,
    onUpdate(pod, before) {
      if (isFinished(pod) !== isFinished(before)) podChanged(pod);
    },
    onDelete: podChanged,
  });
  claims.informer.handle({
    onAdd: (claim) => protection.add(keyOf(claim)),
    onUpdate: (claim) => protection.add(keyOf(claim)),
    onDelete(claim) {
      for (const pod of pods.informer.byIndex(BY_CLAIM, keyOf(claim))) podChanged(pod);
    },
  });
}
