import { selects } from '../kube/selector.ts';
import {
  apiVersionOf,
  type KubeObject,
  type LabelSelector,
  type OwnerReference,
  type Resource,
} from '../kube/types.ts';

/** The reference to the object's controller, if it has one. */
export function controllerOf(object: KubeObject): OwnerReference | undefined {
  return object.metadata?.ownerReferences?.find((reference) => reference.controller === true);
}

export function isControlledBy(object: KubeObject, owner: KubeObject): boolean {
  return controllerOf(object)?.uid === owner.metadata?.uid;
}

/** The reference that makes `owner` the controller of what carries it. */
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
  /** Controlled by the owner and selected by it. */
  readonly owned: T[];
  /** Selected, without a controller: to be adopted. */
  readonly adopt: T[];
  /** Controlled, but no longer selected: to be let go. */
  readonly release: T[];
}

/** Sorts the objects of the owner's namespace by the rules of adoption (upstream's ControllerRefManager). */
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

/** The patch by which an object gets a controller; fails with Conflict or Invalid when it got another one meanwhile. */
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

/** The patch by which an object loses its owner. */
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
