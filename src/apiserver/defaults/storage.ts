import { type ApiObject, isObject } from '../object.ts';

/** Fills in what a PersistentVolume leaves out (upstream's SetDefaults_PersistentVolume). */
export function defaultVolume(volume: ApiObject): void {
  const { spec } = volume;
  if (!isObject(spec)) return;
  spec['persistentVolumeReclaimPolicy'] ??= 'Retain';
  spec['volumeMode'] ??= 'Filesystem';
  const { hostPath } = spec;
  if (isObject(hostPath)) hostPath['type'] ??= '';
}

/** Fills in what a PersistentVolumeClaim leaves out (upstream's SetDefaults_PersistentVolumeClaim). */
export function defaultClaim(claim: ApiObject): void {
  if (isObject(claim['spec'])) claim['spec']['volumeMode'] ??= 'Filesystem';
}

/** Fills in what a StorageClass leaves out (upstream's SetDefaults_StorageClass). */
export function defaultStorageClass(storageClass: ApiObject): void {
  storageClass['reclaimPolicy'] ??= 'Delete';
  storageClass['volumeBindingMode'] ??= 'Immediate';
}
