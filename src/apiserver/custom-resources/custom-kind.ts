import type { WebhookClient } from '../admission/webhooks/webhook-client.ts';
import { type Converter, defineKind, type Kind } from '../kind.ts';
import type { ApiObject, JsonObject } from '../object.ts';
import type { FieldError } from '../status-error.ts';
import { compareVersions } from '../version-order.ts';
import { createWebhookConverter } from './conversion-webhook.ts';
import { type DefinitionSpec, type DefinitionVersion, specOf, statusOf } from './definition.ts';
import { parseJsonPath } from './json-path.ts';
import type { EvaluateRule } from './object-rules.ts';
import { createColumnPrinter } from './printer-columns.ts';
import {
  applyDefaults,
  dropNulls,
  hasDefaults,
  pruneValue,
  type StructuralSchema,
  withRequiredHeads,
} from './structural-schema.ts';
import { validateStatusValue, validateValue } from './validate-value.ts';

/** A version of a definition as a kind, with the operations of its schema. */
export interface CustomKind {
  readonly kind: Kind;
  readonly version: DefinitionVersion;
  readonly schema: StructuralSchema;
  /** Removes the fields that the schema does not have; returns their paths. */
  prune(object: object): string[];
  /** Removes nulls where the schema has none. */
  dropNulls(object: object): void;
  /** Sets defaults. */
  complete(object: object): void;
}

const ANYTHING: StructuralSchema = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };

/**
 * Builds the kinds of a definition, one for each served version. Objects are stored in the storage version; other
 * versions differ in apiVersion, in their schema's pruning and defaults, and in the conversion by the definition's
 * webhook, if it has one. `client`: null if objects are not converted.
 */
export function customKinds(
  definition: ApiObject,
  evaluateRule: EvaluateRule,
  client: Pick<WebhookClient, 'post'> | null,
): CustomKind[] {
  const spec = specOf(definition);
  const versions = [...spec.versions].sort((a, b) => Number(b.storage) - Number(a.storage));
  const kinds: CustomKind[] = [];
  const { strategy, webhook } = spec.conversion ?? {};
  const converter =
    strategy === 'Webhook' && webhook && client ? createWebhookConverter(webhook, client) : null;
  let storage: CustomKind | null = null;
  for (const version of versions) {
    const made: CustomKind = customKind(definition, version, storage, evaluateRule, converter);
    storage ??= made;
    if (version.served) kinds.push(made);
  }
  return kinds;
}

function customKind(
  definition: ApiObject,
  version: DefinitionVersion,
  storage: CustomKind | null,
  evaluateRule: EvaluateRule,
  converter: Converter | null,
): CustomKind {
  const spec = specOf(definition);
  const names = statusOf(definition).acceptedNames ?? spec.names;
  const schema = version.schema?.openAPIV3Schema ?? ANYTHING;
  const whole = withRequiredHeads(schema);
  const hasStatus = version.subresources?.status !== undefined;
  const prune = (object: object) => pruneValue(schema, object);
  const complete = (object: object) => applyDefaults(schema, object);
  const of = storage?.kind;
  const storageComplete = storage?.complete;
  const kind = defineKind(`${spec.group}/${version.name}`, names.kind, names.plural, {
    singular: names.singular ?? names.kind.toLowerCase(),
    ...(names.listKind ? { listKind: names.listKind } : {}),
    shortNames: names.shortNames ?? [],
    categories: names.categories ?? [],
    namespaced: spec.scope === 'Namespaced',
    status: hasStatus,
    statusKeeps: ['labels', 'annotations', 'finalizers', 'ownerReferences'],
    scale: false,
    // All fields except metadata and status count as the desired state.
    generationFields: Object.keys(schema.properties ?? { spec: {} }).filter(
      (field) => !['apiVersion', 'kind', 'metadata'].includes(field) && !(hasStatus && field === 'status'),
    ),
    fields: Object.fromEntries(
      (version.selectableFields ?? []).map(({ jsonPath }) => {
        const path = parseJsonPath(jsonPath);
        return [jsonPath.replace(/^\./, ''), (object: ApiObject) => String(path(object)[0] ?? '')];
      }),
    ),
    printer: createColumnPrinter(version.additionalPrinterColumns),
    ...(version.deprecated ? { deprecation: version.deprecationWarning ?? deprecation(spec, version) } : {}),
    isCustom: true,
    needsVersion: true,
    anyFinalizers: true,
    ...(converter ? { converter } : {}),
    validate: (object: ApiObject, before: ApiObject | null): FieldError[] =>
      validateValue(whole, object, {
        evaluateRule,
        ...(before ? { old: before } : {}),
      }),
    validateStatus: (object: ApiObject, before: ApiObject): FieldError[] =>
      validateStatusValue(schema, object as JsonObject, { evaluateRule, old: before }),
    settle: (object: ApiObject) => dropNulls(schema, object),
    // Objects that were stored before their schema had its defaults show them when read.
    ...(!of && hasDefaults(schema)
      ? {
          shown(object: ApiObject) {
            const shown = structuredClone(object);
            applyDefaults(schema, shown);
            return shown;
          },
        }
      : {}),
    ...(of
      ? {
          view: {
            of,
            toStorage(object: ApiObject) {
              const stored = { ...object, apiVersion: `${of.group}/${of.version}` };
              storage?.dropNulls(stored);
              storageComplete?.(stored);
              return stored;
            },
            fromStorage(object: ApiObject) {
              const shown = structuredClone(object);
              prune(shown);
              dropNulls(schema, shown);
              complete(shown);
              return shown;
            },
          },
        }
      : {}),
  });
  return { kind, version, schema, prune, dropNulls: (object) => dropNulls(schema, object), complete };
}

/** Builds the warning of a deprecated version without its own text: it names the best version to use instead. */
function deprecation({ group, names, versions }: DefinitionSpec, { name }: DefinitionVersion): string {
  const [better] = versions
    .filter((one) => one.served && !one.deprecated && compareVersions(one.name, name) < 0)
    .map((one) => one.name)
    .sort(compareVersions);
  const instead = better ? `; use ${group}/${better} ${names.kind}` : '';
  return `${group}/${name} ${names.kind} is deprecated${instead}`;
}
