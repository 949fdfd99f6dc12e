import { selects } from '../kube/selector.ts';
import {
  apiVersionOf,
  type KubeObject,
  type LabelSelector,
  type OwnerReference,
  type Resource,
} from '../kube/types.ts';

/** Returns the reference to the object's controller, if it has one. */
export function controllerOf(object: KubeObject): OwnerReference | undefined {
  return object.metadata?.ownerReferences?.find((reference) => reference.controller === true);
}

export function isControlledBy(object: KubeObject, owner: KubeObject): boolean {
  return controllerOf(object)?.uid === owner.metadata?.uid;
}

/** Builds the reference that makes `owner` the controller of an object. */
export function controllerReference(owner: KubeObject, resource: Resource): OwnerReference {
  return {
    apiVersion: apiVersionOf(resource),
    kind: resource.kind,
    name: owner.metadata?.name ?? '',
    uid: owner.metadata?.uid ?? '',
    controller: true,
    blockOwnerDeletion: true,
  };
}

export interface Claim<T> {
  /** Controlled by the owner and matched by its selector. */
  readonly owned: T[];
  /** Matched, without a controller: to be adopted. */
  readonly adopt: T[];
  /** Controlled, but no longer matched: to be released. */
  readonly release: T[];
}

/** Classifies the objects of the owner's namespace by the rules of adoption (upstream's ControllerRefManager). */
export function claim<T extends KubeObject>(
  owner: KubeObject,
  selector: LabelSelector | undefined,
  candidates: Iterable<T>,
): Claim<T> {
  const result: Claim<T> = { owned: [], adopt: [], release: [] };
  const ending = owner.metadata?.deletionTimestamp !== undefined;
  for (const object of candidates) {
    const controller = controllerOf(object);
    const matches = selects(selector, object.metadata?.labels);
    if (controller?.uid === owner.metadata?.uid) {
      if (matches) result.owned.push(object);
      else if (!ending && object.metadata?.deletionTimestamp === undefined) result.release.push(object);
    } else if (!controller && matches && !ending && object.metadata?.deletionTimestamp === undefined) {
      result.adopt.push(object);
    }
  }
  return result;
}

/**
 * Builds the patch that adds a controller to an object; fails with Conflict or Invalid if it got another one
 * concurrently.
 */
export function adoption(object: KubeObject, owner: KubeObject, resource: Resource) {
  const references = object.metadata?.ownerReferences ?? [];
  return {
    metadata: {
      uid: object.metadata?.uid,
      resourceVersion: object.metadata?.resourceVersion,
      ownerReferences: [...references, controllerReference(owner, resource)],
    },
  };
}

/** Builds the patch that removes an object's owner. */
export function release(object: KubeObject, owner: KubeObject) {
  const references = object.metadata?.ownerReferences ?? [];
  return {
    metadata: {
      uid: object.metadata?.uid,
      resourceVersion: object.metadata?.resourceVersion,
      ownerReferences: references.filter((reference) => reference.uid !== owner.metadata?.uid),
    },
  };
}
