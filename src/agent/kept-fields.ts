import type { EndpointSlice, Node, ObjectMeta, Service, SliceEndpoint } from '../kube/types.ts';

/**
 * What an agent keeps of the objects that it follows. A large cluster has a hundred thousand endpoints, and every
 * node a copy of them: what nobody here reads is dropped before it is kept, and texts that repeat are shared.
 * What is not as the API says passes as it is, so that those who read it can say what is wrong with it.
 */

const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

/** Without the field owners and what kubectl applied. */
export function keptService(service: Service): Service {
  return service.metadata ? { ...service, metadata: keptMetadata(service.metadata) } : service;
}

/** Without the field owners and the list of images that the node has. */
export function keptNode(node: Node): Node {
  const { images, ...status } = node.status ?? {};
  return {
    ...node,
    ...(node.metadata ? { metadata: keptMetadata(node.metadata) } : {}),
    ...(node.status ? { status } : {}),
  };
}

function keptMetadata(metadata: ObjectMeta): ObjectMeta {
  const { managedFields, ...kept } = metadata;
  const annotations = kept.annotations as Record<string, string> | undefined;
  if (!isObject(annotations) || !(LAST_APPLIED in annotations)) return kept;
  const { [LAST_APPLIED]: applied, ...others } = annotations;
  return { ...kept, annotations: others };
}

/** Makes a transform of EndpointSlices that shares what is equal in all that pass through it. */
export function createSliceTransform(): (slice: EndpointSlice) => EndpointSlice {
  const texts = new Map<string, string>();
  const conditions = new Map<string, SliceEndpoint['conditions']>();

  const share = (text: string): string => {
    const known = texts.get(text);
    if (known !== undefined) return known;
    texts.set(text, text);
    return text;
  };

  const shareConditions = (found: NonNullable<SliceEndpoint['conditions']>) => {
    const { ready, serving, terminating } = found;
    if (![ready, serving, terminating].every(isFlag)) return found;
    const key = `${ready} ${serving} ${terminating}`;
    const known = conditions.get(key);
    if (known) return known;
    const kept = { ...found };
    conditions.set(key, kept);
    return kept;
  };

  const keptEndpoint = (endpoint: SliceEndpoint): SliceEndpoint => {
    if (!isObject(endpoint)) return endpoint;
    const { addresses, conditions: found, hints, hostname, nodeName, targetRef, zone } = endpoint;
    // All in one literal: fields that are added one by one lie in a second allocation.
    return {
      addresses,
      ...(found === undefined ? {} : { conditions: isObject(found) ? shareConditions(found) : found }),
      ...(nodeName === undefined ? {} : { nodeName: shareText(nodeName) }),
      ...(zone === undefined ? {} : { zone: shareText(zone) }),
      ...(targetRef === undefined ? {} : { targetRef: keptReference(targetRef) }),
      ...(hints === undefined ? {} : { hints }),
      ...(hostname === undefined ? {} : { hostname }),
    };
  };

  // What is no text is somebody's mistake, to be seen by those who read the slice.
  const shareText = (value: string): string => (typeof value === 'string' ? share(value) : value);

  const keptReference = (reference: NonNullable<SliceEndpoint['targetRef']>) => {
    if (!isObject(reference)) return reference;
    const { kind, namespace, name } = reference;
    if (typeof kind !== 'string' || typeof namespace !== 'string' || typeof name !== 'string')
      return reference;
    return { kind: share(kind), namespace: share(namespace), name };
  };

  return (slice) => {
    const { metadata, addressType, ports, endpoints } = slice;
    return {
      ...(metadata ? { metadata: keptSliceMetadata(metadata, share) } : {}),
      addressType,
      ...(ports === undefined ? {} : { ports }),
      endpoints: Array.isArray(endpoints) ? endpoints.map(keptEndpoint) : endpoints,
    };
  };
}

/** A slice carries its Service's labels and annotations as well, which nobody looks for there. */
function keptSliceMetadata(metadata: ObjectMeta, share: (text: string) => string): ObjectMeta {
  const { name, namespace, uid, resourceVersion } = metadata;
  const labels = metadata.labels as Record<string, string> | undefined;
  const annotations = metadata.annotations as Record<string, string> | undefined;
  if (typeof name !== 'string' || typeof namespace !== 'string') return metadata;
  const trigger = isObject(annotations) ? annotations[TRIGGER_TIME] : undefined;
  return {
    name,
    namespace: share(namespace),
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
    ...(labels === undefined ? {} : { labels: isObject(labels) ? keptLabels(labels, share) : labels }),
    ...(trigger === undefined ? {} : { annotations: { [TRIGGER_TIME]: trigger } }),
  };
}

function keptLabels(
  labels: Readonly<Record<string, string>>,
  share: (text: string) => string,
): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [label, value] of Object.entries(labels)) {
    if (label.includes('kubernetes.io/')) kept[label] = typeof value === 'string' ? share(value) : value;
  }
  return kept;
}

const isFlag = (value: unknown) => typeof value === 'boolean' || value === undefined;
const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
