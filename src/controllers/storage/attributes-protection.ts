import { attributesClassesOf } from '../../kube/quota/usage.ts';
import type { PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass } from '../../kube/types.ts';
import { type ControllerContext, controllerQueue } from '../context.ts';

const PROTECTION = 'kubernetes.io/vac-protection';

/** Returns the finalizers of a deleted class when no volume or claim uses it; null: unchanged. Pure. */
export function remainingFinalizers(
  attributes: VolumeAttributesClass,
  volumes: readonly PersistentVolume[],
  claims: readonly PersistentVolumeClaim[],
): string[] | null {
  const { name = '', deletionTimestamp, finalizers = [] } = attributes.metadata ?? {};
  if (deletionTimestamp === undefined || !finalizers.includes(PROTECTION)) return null;
  if (volumes.some(({ spec }) => spec?.volumeAttributesClassName === name)) return null;
  if (claims.some((claim) => attributesClassesOf(claim).includes(name))) return null;
  return finalizers.filter((finalizer) => finalizer !== PROTECTION);
}

/** Releases deleted VolumeAttributesClasses once they are unused (upstream's vac-protection controller). */
export function startAttributesProtection(context: ControllerContext): void {
  const {
    volumeAttributesClasses: classes,
    persistentVolumes: volumes,
    persistentVolumeClaims: claims,
  } = context.caches;
  const queue = controllerQueue(context, 'attributes-protection', async (name) => {
    const attributes = classes.get(undefined, name);
    if (!attributes) return;
    const finalizers = remainingFinalizers(attributes, volumes.informer.list(), claims.informer.list());
    if (finalizers === null) return;
    const { uid, resourceVersion } = attributes.metadata ?? {};
    await classes.patch(attributes, 'merge', { metadata: { uid, resourceVersion, finalizers } });
  });
  const add = ({ metadata }: VolumeAttributesClass) => queue.add(metadata?.name ?? '');
  const addAll = (names: readonly string[]) => {
    for (const name of names) queue.add(name);
  };
  const ofVolume = ({ spec }: PersistentVolume) =>
    spec?.volumeAttributesClassName ? [spec.volumeAttributesClassName] : [];
  classes.informer.handle({ onAdd: add, onUpdate: add });
  volumes.informer.handle({
    onUpdate: (_volume, before) => addAll(ofVolume(before)),
    onDelete: (volume) => addAll(ofVolume(volume)),
  });
  claims.informer.handle({
    onUpdate: (_claim, before) => addAll(attributesClassesOf(before)),
    onDelete: (claim) => addAll(attributesClassesOf(claim)),
  });
}
