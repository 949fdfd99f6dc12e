import type { EndpointSlice, Node, ObjectMeta, Service, SliceEndpoint } from '../kube/types.ts';
import {
  HEADLESS_LABEL,
  LAST_APPLIED_ANNOTATION,
  LAST_CHANGE_ANNOTATION,
  PROXY_NAME_LABEL,
} from '../kube/well-known-labels.ts';

/** Labels of EndpointSlices that no proxy here needs: of headless Services, and of Services for another proxy (KEP-2447). */
export const NOT_PROXIED = [HEADLESS_LABEL, PROXY_NAME_LABEL] as const;
/** The selector of the others, as in kube-proxy; DNS needs all. */
export const PROXIED = NOT_PROXIED.map((label) => `!${label}`).join();

/**
 * Transforms that informers apply before they store an object. A large cluster has a hundred thousand endpoints, and
 * every node a copy of them: fields that no part of the agent reads are dropped, and equal texts are shared. A field of
 * the wrong type is kept as it is, so that the part that reads it can report it.
 */

/** Drops the field owners and kubectl's copy of the applied manifest. */
export function trimService(service: Service): Service {
  return service.metadata ? { ...service, metadata: trimMetadata(service.metadata) } : service;
}

/** Drops the field owners and the list of images on the node. */
export function trimNode(node: Node): Node {
  const { images, ...status } = node.status ?? {};
  return {
    ...node,
    ...(node.metadata ? { metadata: trimMetadata(node.metadata) } : {}),
    ...(node.status ? { status } : {}),
  };
}

function trimMetadata(metadata: ObjectMeta): ObjectMeta {
  const { managedFields, ...kept } = metadata;
  const annotations = kept.annotations as Record<string, string> | undefined;
  if (!isObject(annotations) || !(LAST_APPLIED_ANNOTATION in annotations)) return kept;
  const { [LAST_APPLIED_ANNOTATION]: applied, ...others } = annotations;
  return { ...kept, annotations: others };
}

/** Creates a transform of EndpointSlices that shares equal texts and conditions between all slices that it is given. */
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

  const trimEndpoint = (endpoint: SliceEndpoint): SliceEndpoint => {
    if (!isObject(endpoint)) return endpoint;
    const { addresses, conditions: found, hints, hostname, nodeName, targetRef, zone } = endpoint;
    // One literal: V8 stores fields that are added later in a second allocation.
    return {
      addresses,
      ...(found === undefined ? {} : { conditions: isObject(found) ? shareConditions(found) : found }),
      ...(nodeName === undefined ? {} : { nodeName: shareText(nodeName) }),
      ...(zone === undefined ? {} : { zone: shareText(zone) }),
      ...(targetRef === undefined ? {} : { targetRef: trimReference(targetRef) }),
      ...(hints === undefined ? {} : { hints }),
      ...(hostname === undefined ? {} : { hostname }),
    };
  };

  // A value of another type is kept, so that the reader of the slice reports it.
  const shareText = (value: string): string => (typeof value === 'string' ? share(value) : value);

  const trimReference = (reference: NonNullable<SliceEndpoint['targetRef']>) => {
    if (!isObject(reference)) return reference;
    const { kind, namespace, name } = reference;
    if (typeof kind !== 'string' || typeof namespace !== 'string' || typeof name !== 'string')
      return reference;
    return { kind: share(kind), namespace: share(namespace), name };
  };

  return (slice) => {
    const { metadata, addressType, ports, endpoints } = slice;
    return {
      ...(metadata ? { metadata: trimSliceMetadata(metadata, share) } : {}),
      addressType,
      ...(ports === undefined ? {} : { ports }),
      endpoints: Array.isArray(endpoints) ? endpoints.map(trimEndpoint) : endpoints,
    };
  };
}

/** Drops the labels and annotations that the slice repeats from its Service. */
function trimSliceMetadata(metadata: ObjectMeta, share: (text: string) => string): ObjectMeta {
  const { name, namespace, uid, resourceVersion } = metadata;
  const labels = metadata.labels as Record<string, string> | undefined;
  const annotations = metadata.annotations as Record<string, string> | undefined;
  if (typeof name !== 'string' || typeof namespace !== 'string') return metadata;
  const trigger = isObject(annotations) ? annotations[LAST_CHANGE_ANNOTATION] : undefined;
  return {
    name,
    namespace: share(namespace),
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
    ...(labels === undefined ? {} : { labels: isObject(labels) ? trimLabels(labels, share) : labels }),
    ...(trigger === undefined ? {} : { annotations: { [LAST_CHANGE_ANNOTATION]: trigger } }),
  };
}

function trimLabels(
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
