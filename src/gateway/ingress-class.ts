import { annotation, type Identity, identityOf } from './identity.ts';
import {
  DEFAULT_CLASS_ANNOTATION,
  type GatewayObject,
  INGRESS_CONTROLLER,
  LEGACY_CLASS_ANNOTATION,
} from './objects.ts';
import { record, text } from './raw.ts';

/** The IngressClasses whose controller is ours, and which of them takes Ingresses without a class. */
export interface OwnClasses {
  readonly names: ReadonlySet<string>;
  /** null: the default class is another controller's, or there is none. */
  readonly standard: string | null;
}

/** Finds our classes. Of several default classes the newest counts, then the first by name, as for the admission of Ingresses. */
export function ownIngressClasses(classes: readonly GatewayObject[]): OwnClasses {
  const names = new Set<string>();
  let standard: Identity | null = null;
  for (const object of classes) {
    const identity = identityOf(object, false);
    if (!identity) continue;
    if (text(record(object.spec)['controller']) === INGRESS_CONTROLLER) names.add(identity.name);
    if (annotation(object, DEFAULT_CLASS_ANNOTATION) !== 'true') continue;
    const age = standard === null ? -1 : standard.createdAt - identity.createdAt;
    if (standard === null || age < 0 || (age === 0 && identity.name < standard.name)) standard = identity;
  }
  return { names, standard: standard !== null && names.has(standard.name) ? standard.name : null };
}

/** Returns the class of an Ingress if it is one of ours, or null. The annotation counts only without the field. */
export function classOf(object: GatewayObject, classes: OwnClasses): string | null {
  const field = record(object.spec)['ingressClassName'];
  const name = typeof field === 'string' ? field : annotation(object, LEGACY_CLASS_ANNOTATION);
  if (name === null || name === '') return classes.standard;
  return classes.names.has(name) ? name : null;
}
