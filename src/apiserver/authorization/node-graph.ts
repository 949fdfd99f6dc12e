import { MIRROR_ANNOTATION } from '../../kube/well-known-labels.ts';
import { type ApiObject, at, isObject, listAt, textAt } from '../object.ts';
import type { GraphSource } from './graph-source.ts';
import { indexSharedReads, type SharedReads } from './shared-reads.ts';

/** Collections of the objects that pods refer to. */
export type Referenced =
  | 'secrets'
  | 'configmaps'
  | 'persistentvolumeclaims'
  | 'serviceaccounts'
  | 'resourceclaims.resource.k8s.io';

/** Indexes the objects that the pods of a node refer to, which the node's agent may read. */
export interface NodeGraph {
  /** Reports whether a pod (`key`: "namespace/name") is bound to the node. */
  runs(node: string, key: string): boolean;
  /** Reports whether a pod of the node refers to an object. `key`: "namespace/name". */
  refers(node: string, collection: Referenced, key: string): boolean;
  /** Reports whether a claim that a pod of the node uses is bound to the volume (`key`: "/name"). */
  refersToVolume(node: string, key: string): boolean;
  /** Reports whether a persistent volume that the node uses refers to the secret. */
  refersToVolumeSecret(node: string, key: string): boolean;
  /** Reports whether agents of all nodes may read the object. */
  isShared(collection: Referenced, key: string): boolean;
  close(): void;
}

/** Indexes the references of pods that are bound to a node, and updates the index when pods change. */
export function createNodeGraph(source: GraphSource, sharedReads: SharedReads | null = null): NodeGraph {
  const shared = sharedReads && indexSharedReads(source, sharedReads);
  /** "collection namespace/name" → nodes → number of pods there that refer to it. */
  const nodesOf = new Map<string, Map<string, number>>();
  const count = (pod: ApiObject | null, step: 1 | -1) => {
    const node = pod ? textAt(pod, 'spec', 'nodeName') : '';
    if (pod === null || node === '') return;
    for (const reference of new Set(podReferences(pod))) {
      const nodes = nodesOf.get(reference) ?? new Map<string, number>();
      const left = (nodes.get(node) ?? 0) + step;
      if (left > 0) nodes.set(node, left);
      else nodes.delete(node);
      if (nodes.size > 0) nodesOf.set(reference, nodes);
      else nodesOf.delete(reference);
    }
  };
  for (const pod of source.list('pods')) count(pod, 1);
  const stop = source.listen('pods', (before, after) => {
    count(before, -1);
    count(after, 1);
  });
  const refers: NodeGraph['refers'] = (node, collection, key) =>
    nodesOf.get(`${collection} ${key}`)?.has(node) ?? false;
  const refersToVolume: NodeGraph['refersToVolume'] = (node, key) => {
    const claim = at(source.get('persistentvolumes', key), 'spec', 'claimRef');
    if (!isObject(claim)) return false;
    return refers(node, 'persistentvolumeclaims', `${textAt(claim, 'namespace')}/${textAt(claim, 'name')}`);
  };
  return {
    runs: (node, key) => textAt(source.get('pods', key), 'spec', 'nodeName') === node,
    refers,
    refersToVolume,
    refersToVolumeSecret: (node, key) =>
      source
        .list('persistentvolumes')
        .some(
          (volume) => volumeSecrets(volume).includes(key) && refersToVolume(node, `/${volume.metadata.name}`),
        ),
    isShared: (collection, key) => shared?.allows(collection, key) === true,
    close() {
      stop();
      shared?.close();
    },
  };
}

/** Returns the references of a pod as "collection namespace/name". Mirror pods of the node's own files have none. */
export function podReferences(pod: ApiObject): string[] {
  if (pod.metadata.annotations?.[MIRROR_ANNOTATION] !== undefined) return [];
  const found: string[] = [];
  const namespace = pod.metadata.namespace ?? '';
  const add = (collection: Referenced, name: string) => {
    if (name !== '') found.push(`${collection} ${namespace}/${name}`);
  };
  const { spec } = pod;
  add('serviceaccounts', textAt(spec, 'serviceAccountName'));
  for (const secret of listAt(spec, 'imagePullSecrets')) add('secrets', textAt(secret, 'name'));
  for (const list of ['initContainers', 'containers', 'ephemeralContainers']) {
    for (const container of listAt(spec, list)) {
      for (const variable of listAt(container, 'env')) {
        add('secrets', textAt(variable, 'valueFrom', 'secretKeyRef', 'name'));
        add('configmaps', textAt(variable, 'valueFrom', 'configMapKeyRef', 'name'));
      }
      for (const source of listAt(container, 'envFrom')) {
        add('secrets', textAt(source, 'secretRef', 'name'));
        add('configmaps', textAt(source, 'configMapRef', 'name'));
      }
    }
  }
  for (const volume of listAt(spec, 'volumes')) {
    add('secrets', textAt(volume, 'secret', 'secretName'));
    add('configmaps', textAt(volume, 'configMap', 'name'));
    add('persistentvolumeclaims', textAt(volume, 'persistentVolumeClaim', 'claimName'));
    if (isObject(volume['ephemeral']))
      add('persistentvolumeclaims', `${pod.metadata.name}-${textAt(volume, 'name')}`);
    for (const source of listAt(volume, 'projected', 'sources')) {
      add('secrets', textAt(source, 'secret', 'name'));
      add('configmaps', textAt(source, 'configMap', 'name'));
    }
    for (const plugin of SECRET_VOLUMES) add('secrets', textAt(volume, plugin, 'secretRef', 'name'));
    add('secrets', textAt(volume, 'azureFile', 'secretName'));
    add('secrets', textAt(volume, 'csi', 'nodePublishSecretRef', 'name'));
  }
  for (const status of listAt(pod['status'], 'resourceClaimStatuses')) {
    add('resourceclaims.resource.k8s.io', textAt(status, 'resourceClaimName'));
  }
  return found;
}

const SECRET_VOLUMES = ['cephfs', 'flexVolume', 'iscsi', 'rbd', 'scaleIO', 'storageos'];

/** Returns the secrets that a persistent volume refers to, as "namespace/name". */
function volumeSecrets(volume: ApiObject): string[] {
  const { spec } = volume;
  const claimNamespace = textAt(spec, 'claimRef', 'namespace');
  const references = [
    ...SECRET_VOLUMES.map((plugin) => at(spec, plugin, 'secretRef')),
    ...[
      'nodePublishSecretRef',
      'nodeStageSecretRef',
      'controllerPublishSecretRef',
      'nodeExpandSecretRef',
    ].map((field) => at(spec, 'csi', field)),
    {
      name: textAt(spec, 'azureFile', 'secretName'),
      namespace: textAt(spec, 'azureFile', 'secretNamespace'),
    },
  ];
  return references
    .filter((reference) => textAt(reference, 'name') !== '')
    .map((reference) => `${textAt(reference, 'namespace') || claimNamespace}/${textAt(reference, 'name')}`);
}
