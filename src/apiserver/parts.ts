import type { Kind } from './kind.ts';
import { type ApiObject, at, isObject, type JsonObject, listAt } from './object.ts';
import type { Part } from './store-requests.ts';

/**
 * Reverts every change in `object` that a subresource may not make, as upstream's strategy for it. Most of them may
 * change metadata (labels, annotations, finalizers); the kind names the exceptions.
 */
export function limitToPart(
  kind: Kind,
  part: Exclude<Part, 'main'>,
  object: ApiObject,
  current: ApiObject,
): void {
  const wanted = { ...object };
  const { metadata } = object;
  if (part === 'status') {
    for (const field of kind.statusKeeps ?? []) {
      delete metadata[field];
      if (current.metadata[field] !== undefined)
        Object.assign(metadata, { [field]: current.metadata[field] });
    }
  }
  for (const field of Object.keys(object)) if (!(field in current)) delete object[field];
  Object.assign(object, current, { metadata });
  const spec = isObject(current['spec']) ? current['spec'] : {};
  switch (part) {
    case 'status':
      if (wanted['status'] === undefined) delete object['status'];
      else object['status'] = wanted['status'];
      // Only the approval subresource approves or denies a certificate request.
      if (kind.collection === CERTIFICATE_REQUESTS)
        object['status'] = {
          ...statusOf(wanted),
          conditions: [...decisionsOf(current), ...othersOf(wanted)],
        };
      return;
    case 'approval':
      object['status'] = { ...statusOf(current), conditions: listAt(wanted, 'status', 'conditions') };
      return;
    case 'finalize':
      object['spec'] = { ...spec, finalizers: at(wanted, 'spec', 'finalizers') };
      return;
    case 'ephemeralcontainers': {
      const containers = listAt(wanted, 'spec', 'ephemeralContainers');
      object['spec'] = { ...spec, ...(containers.length > 0 ? { ephemeralContainers: containers } : {}) };
      return;
    }
    case 'resize':
      object['spec'] = withResources(spec, wanted);
      return;
    case 'binding':
      object['spec'] = wanted['spec'];
      object['status'] = wanted['status'];
  }
}

const CERTIFICATE_REQUESTS = 'certificatesigningrequests.certificates.k8s.io';
const isDecision = ({ type }: JsonObject) => type === 'Approved' || type === 'Denied';
const decisionsOf = (request: ApiObject) => listAt(request, 'status', 'conditions').filter(isDecision);
const othersOf = (request: ApiObject) =>
  listAt(request, 'status', 'conditions').filter((condition) => !isDecision(condition));
const statusOf = ({ status }: ApiObject): JsonObject => (isObject(status) ? status : {});

/** Returns the spec with the wanted resources and resize policies of the containers (KEP-1287). */
function withResources(spec: JsonObject, wanted: ApiObject): JsonObject {
  const result: JsonObject = { ...spec };
  for (const list of ['containers', 'initContainers']) {
    const asked = new Map(listAt(wanted, 'spec', list).map((container) => [container['name'], container]));
    const own = listAt({ spec }, 'spec', list);
    if (own.length === 0) continue;
    result[list] = own.map((container) => {
      const other = asked.get(container['name']);
      if (!other) return container;
      const { resources: _resources, resizePolicy: _policy, ...rest } = container;
      return {
        ...rest,
        ...(other['resources'] === undefined ? {} : { resources: other['resources'] }),
        ...(other['resizePolicy'] === undefined ? {} : { resizePolicy: other['resizePolicy'] }),
      };
    });
  }
  return result;
}
