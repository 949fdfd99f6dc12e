import { statSync } from 'node:fs';
import { hasReason } from '../kube/client.ts';
import type { ObjectReader } from '../kube/shared-reads.ts';
import { type PersistentVolume, type Pod, RESOURCES } from '../kube/types.ts';
import { inFileThread } from './files/file-thread.ts';
import { KubeletError } from './kubelet-error.ts';

type Volume = NonNullable<NonNullable<Pod['spec']>['volumes']>[number];

/** Returns the claim of a pod's volume; null: a volume of another kind. */
export function claimName(pod: Pod, volume: Volume): string | null {
  if (volume.persistentVolumeClaim) return volume.persistentVolumeClaim.claimName;
  return volume.ephemeral ? `${pod.metadata?.name}-${volume.name}` : null;
}

/** Returns the names of the volumes that are read-only for the whole pod. */
export function readOnlyVolumes(pod: Pod): Set<string> {
  const volumes = (pod.spec?.volumes ?? []).filter((volume) => volume.persistentVolumeClaim?.readOnly);
  return new Set(volumes.map(({ name }) => name));
}

/** Returns the PersistentVolume of a claim of the pod. Throws FailedMount while the claim is not bound. */
export async function boundVolume(reader: ObjectReader, pod: Pod, claim: string): Promise<PersistentVolume> {
  const namespace = pod.metadata?.namespace ?? 'default';
  const found = await read(
    () => reader.get(RESOURCES.persistentVolumeClaims, claim, namespace),
    `persistentvolumeclaim ${JSON.stringify(claim)} not found`,
  );
  const name = found.spec?.volumeName ?? '';
  if (name === '' || found.status?.phase !== 'Bound') {
    throw failedMount(`persistentvolumeclaim ${JSON.stringify(claim)} is not bound to a volume yet`);
  }
  const volume = await read(
    () => reader.get(RESOURCES.persistentVolumes, name),
    `persistentvolume ${JSON.stringify(name)} of claim ${JSON.stringify(claim)} not found`,
  );
  if (volume.spec?.claimRef?.uid !== found.metadata?.uid) {
    throw failedMount(`persistentvolume ${JSON.stringify(name)} is bound to a claim other than ${claim}`);
  }
  return volume;
}

async function read<T>(get: () => Promise<T>, missing: string): Promise<T> {
  try {
    return await get();
  } catch (error) {
    if (hasReason(error, 'NotFound')) throw failedMount(missing);
    throw error;
  }
}

/** The time for changing the owners of a volume of any number of files. */
const OWNERSHIP_SECONDS = 600;

/** Prepares a local volume for a pod: the folder must exist. */
export async function prepareLocalVolume(pod: Pod, path: string): Promise<void> {
  if (!statSync(path, { throwIfNoEntry: false })) throw failedMount(`local volume: ${path} does not exist`);
  const { fsGroup, fsGroupChangePolicy } = pod.spec?.securityContext ?? {};
  if (fsGroup === undefined) return;
  const top = statSync(path);
  if (fsGroupChangePolicy === 'OnRootMismatch' && top.gid === fsGroup && (top.mode & 0o2070) === 0o2070)
    return;
  await inFileThread({ kind: 'give', path, group: fsGroup }, OWNERSHIP_SECONDS);
}

function failedMount(message: string): KubeletError {
  return new KubeletError('FailedMount', message, { op: 'mount volume' });
}
