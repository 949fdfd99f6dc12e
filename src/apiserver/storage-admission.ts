import { timestamp } from '../kube/timestamp.ts';
import type { StrategyContext } from './kind.ts';
import { type ApiObject, isObject } from './object.ts';

const DEFAULT_CLASS = 'storageclass.kubernetes.io/is-default-class';

/** Keeps volumes in use from going (upstream's StorageObjectInUseProtection). */
function protect(object: ApiObject, finalizer: string): void {
  const finalizers = object.metadata.finalizers ?? [];
  if (!finalizers.includes(finalizer)) object.metadata.finalizers = [...finalizers, finalizer];
}

/** Brings a new PersistentVolume into its first state. */
export function prepareVolume(volume: ApiObject, context: StrategyContext): void {
  volume['status'] = { phase: 'Pending', lastPhaseTransitionTime: timestamp(context.now.getTime()) };
  protect(volume, 'kubernetes.io/pv-protection');
}

/** Keeps a VolumeAttributesClass while volumes have it. */
export function protectAttributes(attributes: ApiObject): void {
  protect(attributes, 'kubernetes.io/vac-protection');
}

/**
 * Brings a new PersistentVolumeClaim into its first state; one that names no class gets the default one, the newest
 * where several are marked (upstream's DefaultStorageClass).
 */
export function prepareClaim(claim: ApiObject, context: StrategyContext): void {
  claim['status'] = { phase: 'Pending' };
  protect(claim, 'kubernetes.io/pvc-protection');
  const { spec } = claim;
  if (!isObject(spec) || spec['storageClassName'] !== undefined) return;
  if (claim.metadata.annotations?.['volume.beta.kubernetes.io/storage-class'] !== undefined) return;
  const name = defaultStorageClassName(context);
  if (name !== undefined) spec['storageClassName'] = name;
}

function defaultStorageClassName(context: StrategyContext): string | undefined {
  const classes = context
    .list('storageclasses.storage.k8s.io')
    .filter(({ metadata }) => metadata.annotations?.[DEFAULT_CLASS] === 'true');
  const created = ({ metadata }: ApiObject) => metadata.creationTimestamp ?? '';
  classes.sort((a, b) =>
    created(a) === created(b)
      ? (a.metadata.name ?? '') < (b.metadata.name ?? '')
        ? -1
        : 1
      : created(a) > created(b)
        ? -1
        : 1,
  );
  return classes[0]?.metadata.name;
}
