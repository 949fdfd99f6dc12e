import type { Kind } from '../kind.ts';
import type { Resource, Subresource } from '../services.ts';
import { BINDING_SUBRESOURCE, BINDINGS } from '../subresources/binding.ts';
import { EVICTION_SUBRESOURCE } from '../subresources/eviction.ts';
import { ATTACH, EXEC, LOG, PORT_FORWARD } from '../subresources/node-streams.ts';
import { APPROVAL, EPHEMERAL_CONTAINERS, FINALIZE, RESIZE, STATUS } from '../subresources/part.ts';
import { NODE_PROXY, POD_PROXY, SERVICE_PROXY } from '../subresources/proxy.ts';
import { SCALE_SUBRESOURCE } from '../subresources/scale.ts';
import { TOKEN_SUBRESOURCE } from '../subresources/token.ts';
import { create } from '../verbs/create.ts';
import { deleteCollection, deleteObject } from '../verbs/delete.ts';
import { getObject } from '../verbs/get.ts';
import { listObjects } from '../verbs/list.ts';
import { patchPart } from '../verbs/patch.ts';
import { updatePart } from '../verbs/update.ts';
import { watchObjects } from '../verbs/watch.ts';
import { COMPONENT_STATUSES } from './component-statuses.ts';
import { METRICS_RESOURCES } from './metrics-resources.ts';
import { REVIEW_RESOURCES } from './reviews.ts';

/** Subresources of single resources. */
const OWN_SUBRESOURCES: Readonly<Record<string, readonly Subresource[]>> = {
  pods: [
    ATTACH,
    BINDING_SUBRESOURCE,
    EPHEMERAL_CONTAINERS,
    EVICTION_SUBRESOURCE,
    EXEC,
    LOG,
    POD_PROXY,
    PORT_FORWARD,
    RESIZE,
  ],
  namespaces: [FINALIZE],
  serviceaccounts: [TOKEN_SUBRESOURCE],
  nodes: [NODE_PROXY],
  services: [SERVICE_PROXY],
  'certificatesigningrequests.certificates.k8s.io': [APPROVAL],
};

/** Builds the route-table entry of a stored kind: all verbs, and status and scale if the kind has them. */
export function storedResource(kind: Kind, own: readonly Subresource[] = []): Resource {
  const subresources = [
    ...own,
    ...(kind.status ? [STATUS] : []),
    ...(kind.scale ? [SCALE_SUBRESOURCE] : []),
  ].sort((a, b) => (a.name < b.name ? -1 : 1));
  return {
    kind,
    stored: true,
    handlers: {
      create,
      delete: deleteObject,
      ...(kind.deleteCollection === false ? {} : { deletecollection: deleteCollection }),
      get: getObject,
      list: listObjects,
      patch: patchPart('main'),
      update: updatePart('main'),
      watch: watchObjects,
    },
    subresources: new Map(subresources.map((one) => [one.name, one])),
  };
}

/** Builds the initial route table of the server. */
export function builtinResources(kinds: readonly Kind[]): Resource[] {
  return [
    ...kinds.map((kind) => storedResource(kind, OWN_SUBRESOURCES[kind.collection])),
    BINDINGS,
    COMPONENT_STATUSES,
    ...REVIEW_RESOURCES,
    ...METRICS_RESOURCES,
  ];
}
