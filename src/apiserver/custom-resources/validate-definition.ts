import { type ApiObject, equal, isObject, type JsonObject } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { nameProblem } from '../validation/names.ts';
import { hasCondition, specOf } from './definition.ts';
import { parseJsonPath } from './json-path.ts';
import { checkExpressions } from './validate-rules.ts';
import { checkSchema } from './validate-schema.ts';

const SCOPES = ['Cluster', 'Namespaced'];
const COLUMN_TYPES = ['boolean', 'date', 'integer', 'number', 'string'];

/**
 * Validates a CustomResourceDefinition and, on updates, its immutable fields. Source: apiextensions-apiserver
 * pkg/apis/apiextensions/validation and pkg/apiserver/schema (structural schemas).
 */
export function validateDefinition(definition: ApiObject, before: ApiObject | null): FieldError[] {
  const raw = definition['spec'];
  if (!isObject(raw)) return [required('spec')];
  if (!isObject(raw['names'])) return [required('spec.names')];
  const spec = specOf(definition);
  const { group, names, versions } = spec;
  const errors: FieldError[] = [];
  const wanted = `${names.plural}.${group}`;
  if (definition.metadata.name !== wanted) {
    errors.push(
      invalid('metadata.name', definition.metadata.name, 'must be spec.names.plural+"."+spec.group'),
    );
  }
  if (!group) errors.push(required('spec.group'));
  else {
    const problem = nameProblem(group, 'subdomain');
    if (problem) errors.push(invalid('spec.group', group, problem));
    else if (!group.includes('.')) {
      errors.push(invalid('spec.group', group, 'should be a domain with at least one dot'));
    }
    if (/(^|\.)(k8s|kubernetes)\.io$/.test(group)) errors.push(...checkProtectedGroup(definition));
  }
  if (!spec.scope) errors.push(required('spec.scope'));
  else if (!SCOPES.includes(spec.scope)) errors.push(notSupported('spec.scope', spec.scope, SCOPES));
  errors.push(...checkNames(names as unknown as JsonObject));
  errors.push(...checkVersions(spec.versions));
  errors.push(...checkConversion(raw['conversion']));
  if (raw['preserveUnknownFields'] === true && !before) {
    errors.push(
      invalid(
        'spec.preserveUnknownFields',
        true,
        'cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead',
      ),
    );
  }
  const all = Array.isArray(versions) ? versions : [];
  // Upstream's internal form has a schema that all versions share only once.
  const isShared = all.every(({ schema }) => equal(schema, all[0]?.schema));
  for (const [index, version] of all.entries()) {
    const path = `spec.versions[${index}]`;
    const schema = version.schema?.openAPIV3Schema;
    const place = isShared ? 'spec.validation.openAPIV3Schema' : `${path}.schema.openAPIV3Schema`;
    if (!schema) errors.push(required(`${path}.schema.openAPIV3Schema`, 'schemas are required'));
    else if (index === 0 || !isShared) {
      const found = checkSchema(schema, place, { isRoot: true, isNested: false });
      errors.push(...(found.length > 0 ? found : checkExpressions(schema, place, before?.['spec'] ?? null)));
    }
    for (const [at, column] of (version.additionalPrinterColumns ?? []).entries()) {
      const place = `${path}.additionalPrinterColumns[${at}]`;
      if (!column.name) errors.push(required(`${place}.name`));
      if (!COLUMN_TYPES.includes(column.type)) {
        errors.push(invalid(`${place}.type`, column.type, `must be one of ${COLUMN_TYPES.join(',')}`));
      }
      if (!column.jsonPath) errors.push(required(`${place}.jsonPath`));
      else errors.push(...checkPath(`${place}.jsonPath`, column.jsonPath));
    }
    const scale = version.subresources?.scale;
    if (scale) {
      const place = `${path}.subresources.scale`;
      errors.push(...checkScalePath(`${place}.specReplicasPath`, scale.specReplicasPath, 'spec'));
      errors.push(...checkScalePath(`${place}.statusReplicasPath`, scale.statusReplicasPath, 'status'));
    }
  }
  if (before && hasCondition(before, 'Established')) {
    const old = specOf(before);
    const fixed: readonly [string, unknown, unknown][] = [
      ['spec.scope', spec.scope, old.scope],
      ['spec.names.kind', names.kind, old.names.kind],
    ];
    for (const [field, now, then] of fixed) {
      if (now !== then) errors.push(invalid(field, now, 'field is immutable'));
    }
  }
  if (before) {
    const old = specOf(before);
    if (group !== old.group) errors.push(invalid('spec.group', group, 'field is immutable'));
    if (names.plural !== old.names.plural) {
      errors.push(invalid('spec.names.plural', names.plural, 'field is immutable'));
    }
  }
  return errors;
}

/** KEP-2337: API groups of the Kubernetes project require an approval. */
function checkProtectedGroup(definition: ApiObject): FieldError[] {
  const approval = definition.metadata.annotations?.['api-approved.kubernetes.io'];
  if (approval && (approval.startsWith('unapproved') || URL.canParse(approval))) return [];
  const field = 'metadata.annotations[api-approved.kubernetes.io]';
  return approval
    ? [
        invalid(
          field,
          approval,
          'protected groups must have approval annotation "api-approved.kubernetes.io" with either a URL or a reason starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111',
        ),
      ]
    : [
        required(
          field,
          'protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111',
        ),
      ];
}

function checkNames(names: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  const text = (field: string) => (typeof names[field] === 'string' ? (names[field] as string) : '');
  for (const field of ['plural', 'singular', 'kind', 'listKind']) {
    const name = text(field);
    if (name === '') {
      if (field === 'plural' || field === 'kind') errors.push(required(`spec.names.${field}`));
      continue;
    }
    const problem = nameProblem(name.toLowerCase(), 'label1035');
    if (problem) errors.push(invalid(`spec.names.${field}`, name, problem));
  }
  const short = Array.isArray(names['shortNames']) ? names['shortNames'] : [];
  short.forEach((name, index) => {
    const problem = nameProblem(String(name), 'label1035');
    if (problem) errors.push(invalid(`spec.names.shortNames[${index}]`, name, problem));
  });
  if (text('kind') !== '' && text('kind') === text('listKind')) {
    errors.push(invalid('spec.names.listKind', text('listKind'), 'kind and listKind may not be the same'));
  }
  return errors;
}

function checkVersions(versions: unknown): FieldError[] {
  if (!Array.isArray(versions) || versions.length === 0) {
    return [required('spec.versions', 'must have at least one version')];
  }
  const errors: FieldError[] = [];
  const names = new Set<string>();
  let stored = 0;
  for (const [index, version] of (versions as DefinitionLike[]).entries()) {
    const name = version.name ?? '';
    const problem = nameProblem(name, 'label1035');
    if (problem) errors.push(invalid(`spec.versions[${index}].name`, name, problem));
    if (names.has(name)) errors.push(invalid('spec.versions', versions, 'must contain unique version names'));
    names.add(name);
    if (version.storage) stored++;
  }
  if (stored !== 1) {
    errors.push(
      invalid('spec.versions', versions, 'must have exactly one version marked as storage version'),
    );
  }
  return errors;
}

interface DefinitionLike {
  readonly name?: string;
  readonly storage?: boolean;
}

function checkConversion(conversion: unknown): FieldError[] {
  if (!isObject(conversion)) return [];
  const { strategy, webhook } = conversion;
  if (strategy !== 'None' && strategy !== 'Webhook') {
    return [notSupported('spec.conversion.strategy', strategy, ['None', 'Webhook'])];
  }
  if (strategy === 'None') {
    return webhook
      ? [forbidden('spec.conversion.webhook', 'should not be set when strategy is not set to Webhook')]
      : [];
  }
  if (!isObject(webhook))
    return [required('spec.conversion.webhook', 'required when strategy is set to Webhook')];
  const errors: FieldError[] = [];
  const config = webhook['clientConfig'];
  if (!isObject(config)) {
    errors.push(required('spec.conversion.webhook.clientConfig', 'required when strategy is set to Webhook'));
  } else if ((config['url'] === undefined) === (config['service'] === undefined)) {
    errors.push(
      required('spec.conversion.webhook.clientConfig', 'exactly one of url or service is required'),
    );
  }
  const versions = webhook['conversionReviewVersions'];
  const known = Array.isArray(versions) && (versions.includes('v1') || versions.includes('v1beta1'));
  if (!known) {
    errors.push(
      invalid(
        'spec.conversion.webhook.conversionReviewVersions',
        versions ?? null,
        'must include at least one of v1, v1beta1',
      ),
    );
  }
  return errors;
}

function checkPath(field: string, path: string): FieldError[] {
  if (!path.startsWith('.')) return [invalid(field, path, 'must be a simple json path starting with .')];
  try {
    parseJsonPath(path);
    return [];
  } catch (error) {
    return [invalid(field, path, error instanceof Error ? error.message : String(error))];
  }
}

function checkScalePath(field: string, path: string | undefined, part: string): FieldError[] {
  if (!path) return [required(field)];
  return path.startsWith(`.${part}.`) ? [] : [invalid(field, path, `should be a json path under .${part}`)];
}
