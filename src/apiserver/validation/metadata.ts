import type { Kind } from '../kind.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid } from '../status-error.ts';
import { nameProblems, validateAnnotations, validateLabels } from './names.ts';
import { addressNameProblem } from './network.ts';

const STANDARD_FINALIZERS = ['orphan', 'foregroundDeletion', 'kubernetes'];

/** Returns the problems with an object's name. */
export function objectNameProblems(kind: Kind, name: string): string[] {
  if (kind.names !== 'ip') return nameProblems(name, kind.names);
  const problem = addressNameProblem(name);
  return problem === null ? [] : [problem];
}

/** Validates the metadata of an object that is created or, with `before`, updated: all but the form of its name. */
export function validateMetadata(kind: Kind, object: ApiObject, before: ApiObject | null): FieldError[] {
  const { metadata } = object;
  const errors: FieldError[] = [];
  if ((metadata.generation ?? 0) < 0) {
    const detail = 'must be greater than or equal to 0';
    errors.push(invalid('metadata.generation', metadata.generation, detail));
  }
  // Upstream checks only the generated name of a ReplicationController.
  if (metadata.generateName && !before && kind.plural !== 'replicationcontrollers') {
    // The suffix follows the dash.
    const name = metadata.generateName.replace(/-$/, 'a');
    const form = kind.names === 'ip' ? 'subdomain' : kind.names;
    for (const problem of nameProblems(name, form)) {
      errors.push(invalid('metadata.generateName', metadata.generateName, problem));
    }
  }
  errors.push(
    ...validateLabels(metadata.labels, 'metadata.labels'),
    ...validateAnnotations(metadata.annotations, 'metadata.annotations'),
    ...validateOwners(object),
    ...validateFinalizers(metadata.finalizers ?? [], kind.anyFinalizers === true),
  );
  if (before?.metadata.deletionTimestamp !== undefined) {
    const old = new Set(before.metadata.finalizers);
    const added = (metadata.finalizers ?? []).filter((finalizer) => !old.has(finalizer));
    if (added.length > 0) {
      errors.push(
        forbidden(
          'metadata.finalizers',
          `no new finalizers can be added if the object is being deleted, found new finalizers ${JSON.stringify(added)}`,
        ),
      );
    }
  }
  return errors;
}

function validateOwners(object: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const owners = listAt(object, 'metadata', 'ownerReferences');
  owners.forEach((owner) => {
    // Upstream omits the index.
    const field = 'metadata.ownerReferences';
    if (!owner['apiVersion']) errors.push(invalid(`${field}.apiVersion`, '', 'version must not be empty'));
    for (const part of ['kind', 'name', 'uid']) {
      if (!owner[part]) errors.push(invalid(`${field}.${part}`, '', 'must not be empty'));
    }
    if (owner['kind'] === 'Event' && owner['apiVersion'] === 'v1') {
      errors.push(invalid(field, owner, '/v1, Kind=Event is disallowed from being an owner'));
    }
  });
  const controllers = owners.filter((owner) => owner['controller'] === true);
  if (controllers.length > 1) {
    errors.push(
      invalid(
        'metadata.ownerReferences',
        owners,
        'Only one reference can have Controller set to true. Found "true" in references for ' +
          controllers.map((owner) => String(owner['name'])).join(' and '),
      ),
    );
  }
  return errors;
}

function validateFinalizers(finalizers: readonly string[], any: boolean): FieldError[] {
  const errors: FieldError[] = [];
  finalizers.forEach((finalizer, i) => {
    const field = 'metadata.finalizers';
    for (const problem of nameProblems(finalizer, 'qualified'))
      errors.push(invalid(field, finalizer, problem));
    if (!any && !finalizer.includes('/') && !STANDARD_FINALIZERS.includes(finalizer)) {
      errors.push(
        invalid(
          `${field}[${i}]`,
          finalizer,
          'name is neither a standard finalizer name nor is it fully qualified',
        ),
      );
    }
  });
  if (finalizers.includes('orphan') && finalizers.includes('foregroundDeletion')) {
    errors.push(
      invalid(
        'metadata.finalizers',
        finalizers,
        'finalizer orphan and foregroundDeletion cannot be both set',
      ),
    );
  }
  return errors;
}

/** Returns a warning for each new finalizer of a custom resource that another program could use too. */
export function finalizerWarnings(kind: Kind, object: ApiObject, before: ApiObject | null): string[] {
  if (!kind.isCustom) return [];
  const old = before?.metadata.finalizers ?? [];
  return (object.metadata.finalizers ?? [])
    .filter((name) => !name.includes('/') && !STANDARD_FINALIZERS.includes(name) && !old.includes(name))
    .map(
      (name) =>
        `metadata.finalizers: ${JSON.stringify(name)}: prefer a domain-qualified finalizer name${name.includes('.') ? ' including a path (/)' : ''} to avoid accidental conflicts with other finalizer writers`,
    );
}

/** Validates the metadata of a pod template or of a claim template. */
export function validateTemplateMetadata(template: JsonObject, path: string, errors: FieldError[]): void {
  const metadata = isObject(template['metadata']) ? template['metadata'] : {};
  errors.push(
    ...validateLabels(metadata['labels'], `${path}.labels`),
    ...validateAnnotations(metadata['annotations'], `${path}.annotations`),
  );
}
