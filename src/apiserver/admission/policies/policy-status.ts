import { fieldType } from '../../cel/field-type.ts';
import type { RequestPrograms } from '../../cel/request-program.ts';
import { type CelType, DYN } from '../../cel/types.ts';
import { type ApiObject, at, isObject, type JsonObject, listAt, textAt } from '../../object.ts';
import type { FieldSchema } from '../../schema/patch-schema.ts';
import type { ResourceRegistry } from '../../services.ts';
import { POLICY_VARIABLES } from './policy-variables.ts';

const POLICIES = 'validatingadmissionpolicies.admissionregistration.k8s.io';

/** Reads and watches policies, and writes their status. */
export interface PolicyStore {
  list(collection: string): readonly ApiObject[];
  /** Calls the listener with every later change. Returns a function that ends it. */
  listen(
    collection: string,
    listener: (before: ApiObject | null, after: ApiObject | null) => void,
  ): () => void;
  setStatus(policy: ApiObject, status: JsonObject): void;
}

/** Returns the fields of a kind; null for a kind without a schema. */
export type SchemaOf = (apiVersion: string, kind: string) => FieldSchema | null;

/**
 * Records in the status of each ValidatingAdmissionPolicy its observed generation, and the type errors of its expressions
 * for objects of the matched kinds. `later` runs a task after the change that caused it. Returns a function that ends it.
 */
export function followPolicyStatus(
  store: PolicyStore,
  registry: ResourceRegistry,
  schemaOf: SchemaOf,
  programs: RequestPrograms,
  later: (task: () => void) => void,
): () => void {
  const check = (policy: ApiObject | null) => {
    if (!policy || policy.metadata.deletionTimestamp !== undefined) return;
    const { generation } = policy.metadata;
    if (generation === undefined || at(policy, 'status', 'observedGeneration') === generation) return;
    const warnings = typeWarnings(policy, registry, schemaOf, programs);
    const typeChecking = warnings.length > 0 ? { expressionWarnings: warnings } : {};
    later(() => store.setStatus(policy, { observedGeneration: generation, typeChecking }));
  };
  for (const policy of store.list(POLICIES)) check(policy);
  return store.listen(POLICIES, (_before, after) => check(after));
}

/** Returns the type errors of a policy's expressions for the kinds that it names without wildcards. */
function typeWarnings(
  policy: ApiObject,
  registry: ResourceRegistry,
  schemaOf: SchemaOf,
  programs: RequestPrograms,
): { fieldRef: string; warning: string }[] {
  const kinds = matchedKinds(policy, registry).flatMap(({ apiVersion, kind }) => {
    const schema = schemaOf(apiVersion, kind);
    return schema ? [{ apiVersion, kind, types: variableTypes(fieldType(schema, kind)) }] : [];
  });
  const expressions = listAt(policy, 'spec', 'validations').flatMap((validation, i) =>
    ['expression', 'messageExpression'].map((field) => ({
      fieldRef: `spec.validations[${i}].${field}`,
      text: textAt(validation, field),
    })),
  );
  return expressions.flatMap(({ fieldRef, text }) => {
    if (text === '') return [];
    const found = kinds.flatMap(({ apiVersion, kind, types }) => {
      const problem = programs.typeErrors(text, types);
      return problem === null ? [] : [`${apiVersion}, Kind=${kind}: ${problem}\n`];
    });
    return found.length > 0 ? [{ fieldRef, warning: found.join('\n') }] : [];
  });
}

/** Only objects have a type: parameters, and what the policy declares itself, are checked when they are evaluated. */
function variableTypes(object: CelType): ReadonlyMap<string, CelType> {
  return new Map(
    POLICY_VARIABLES.map((name) => [name, name === 'object' || name === 'oldObject' ? object : DYN]),
  );
}

function matchedKinds(policy: ApiObject, registry: ResourceRegistry) {
  const texts = (value: unknown) => (Array.isArray(value) ? value.map(String) : []);
  return listAt(policy, 'spec', 'matchConstraints', 'resourceRules')
    .filter(isObject)
    .flatMap((rule) =>
      texts(rule['apiGroups']).flatMap((group) =>
        texts(rule['apiVersions']).flatMap((version) =>
          texts(rule['resources']).flatMap((resource) => {
            const kind = registry.find(group, version, resource)?.kind;
            return kind
              ? [{ apiVersion: group === '' ? version : `${group}/${version}`, kind: kind.kind }]
              : [];
          }),
        ),
      ),
    );
}
