import { type ApiObject, at, isObject, type JsonObject, listAt, textAt } from '../../object.ts';
import type { ResourceRegistry } from '../../routes/resource-registry.ts';
import type { FieldSchema } from '../../schema/patch-schema.ts';

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
 * Records in the status of each ValidatingAdmissionPolicy its observed generation, and the fields that its expressions
 * read and objects of the matched kinds do not have. `later` runs a task after the change that caused it. Returns a
 * function that ends it.
 */
export function followPolicyStatus(
  store: PolicyStore,
  registry: ResourceRegistry,
  schemaOf: SchemaOf,
  later: (task: () => void) => void,
): () => void {
  const check = (policy: ApiObject | null) => {
    if (!policy || policy.metadata.deletionTimestamp !== undefined) return;
    const { generation } = policy.metadata;
    if (generation === undefined || at(policy, 'status', 'observedGeneration') === generation) return;
    const warnings = typeWarnings(policy, registry, schemaOf);
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
): { fieldRef: string; warning: string }[] {
  const kinds = matchedKinds(policy, registry);
  const expressions = listAt(policy, 'spec', 'validations').flatMap((validation, i) =>
    ['expression', 'messageExpression'].map((field) => ({
      fieldRef: `spec.validations[${i}].${field}`,
      text: textAt(validation, field),
    })),
  );
  return expressions.flatMap(({ fieldRef, text }) => {
    const found = kinds.flatMap(({ apiVersion, kind }) => {
      const schema = schemaOf(apiVersion, kind);
      return schema
        ? unknownFields(text, schema).map(
            ({ column, name }) =>
              `${apiVersion}, Kind=${kind}: ERROR: <input>:1:${column}: undefined field '${name}'`,
          )
        : [];
    });
    return found.length > 0 ? [{ fieldRef, warning: `${found.join('\n')}\n` }] : [];
  });
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

/** Returns the fields that an expression reads from `object` or `oldObject` and that the schema does not have. */
function unknownFields(expression: string, schema: FieldSchema): { column: number; name: string }[] {
  // Text in quotes is not a path; its length is preserved to keep the columns.
  const code = expression.replace(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/g, (text) => ' '.repeat(text.length));
  const found: { column: number; name: string }[] = [];
  for (const path of code.matchAll(/(?<![\w.])(?:object|oldObject)((?:\.[A-Za-z_]\w*)+)(\s*\()?/g)) {
    const names = (path[1] ?? '').slice(1).split('.');
    // The last name before a parenthesis is a function.
    if (path[2] !== undefined) names.pop();
    let at: FieldSchema | null = schema;
    let column = (path.index ?? 0) + path[0].indexOf('.');
    for (const name of names) {
      if (at?.kind !== 'object') break;
      const next: FieldSchema | null = at.field(name);
      if (!next) {
        found.push({ column: column + 1, name });
        break;
      }
      at = next;
      column += name.length + 1;
    }
  }
  return found;
}
