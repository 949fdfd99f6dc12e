import type { AdmissionOperation } from '../admission/plugin.ts';
import { appliedProblems } from '../applied-types.ts';
import { apiVersionOf, type Kind } from '../kind.ts';
import { type FieldManager, isCleared, recordUpdate } from '../managed-fields.ts';
import { type ApiObject, isObject, type JsonObject } from '../object.ts';
import type { Body } from '../requests/body.ts';
import { type RequestContext, warn } from '../requests/request-context.ts';
import type { ApiServices, ResourceContext } from '../services.ts';
import {
  badRequest,
  type FieldError,
  invalid,
  invalidObject,
  notSupported,
  StatusError,
} from '../status-error.ts';
import type { Part, WriteOptions } from '../store-requests.ts';

export type FieldValidation = 'Ignore' | 'Warn' | 'Strict';

/** The common fields of meta/v1 CreateOptions, UpdateOptions and PatchOptions. */
export interface RequestOptions {
  readonly kind: 'CreateOptions' | 'UpdateOptions' | 'PatchOptions';
  readonly dryRun: boolean;
  readonly fieldManager: string;
  readonly fieldValidation: FieldValidation;
  readonly force: boolean;
}

const MAX_MANAGER_LENGTH = 128;

/** Validates `dryRun` as upstream: only "All" is allowed. */
export function checkDryRun(values: readonly string[]): FieldError[] {
  return values.every((value) => value === 'All') ? [] : [notSupported('dryRun', values, ['All'])];
}

/** Parses a write's options from the query. Throws StatusError 422 for values that upstream refuses. */
export function readRequestOptions(
  query: URLSearchParams,
  kind: RequestOptions['kind'],
  isApply = false,
): RequestOptions {
  const dryRun = query.getAll('dryRun');
  const fieldManager = query.get('fieldManager') ?? '';
  const fieldValidation = query.get('fieldValidation') || 'Warn';
  const force = query.get('force') === 'true';
  const errors = checkDryRun(dryRun);
  if (isApply && fieldManager === '')
    errors.push({
      field: 'fieldManager',
      reason: 'FieldValueRequired',
      message: 'Required value: is required for apply patch',
    });
  if (!isApply && query.has('force') && kind === 'PatchOptions')
    errors.push({
      field: 'force',
      reason: 'FieldValueForbidden',
      message: 'Forbidden: may not be specified for non-apply patch',
    });
  if (fieldManager.length > MAX_MANAGER_LENGTH)
    errors.push({
      field: 'fieldManager',
      reason: 'FieldValueTooLong',
      message: `Too long: may not be more than ${MAX_MANAGER_LENGTH} bytes`,
    });
  if (/[^\P{C}]/u.test(fieldManager))
    errors.push(invalid('fieldManager', fieldManager, 'should only contain printable characters'));
  const validations = ['Ignore', 'Strict', 'Warn'];
  if (!validations.includes(fieldValidation))
    errors.push(notSupported('fieldValidation', fieldValidation, ['', ...validations]));
  if (errors.length > 0)
    throw invalidObject({ group: 'meta.k8s.io', kind, plural: kind.toLowerCase() }, '', errors);
  return {
    kind,
    dryRun: dryRun.length > 0,
    fieldManager,
    fieldValidation: fieldValidation as FieldValidation,
    force,
  };
}

/** Returns the options for admission plugins and webhooks. */
export function optionsObject(options: RequestOptions, operation: AdmissionOperation): JsonObject {
  return {
    kind: operation === 'CREATE' && options.kind !== 'PatchOptions' ? 'CreateOptions' : options.kind,
    apiVersion: 'meta.k8s.io/v1',
    ...(options.dryRun ? { dryRun: ['All'] } : {}),
    ...(options.fieldManager === '' ? {} : { fieldManager: options.fieldManager }),
    ...(options.kind === 'PatchOptions' && options.force ? { force: true } : {}),
    fieldValidation: options.fieldValidation,
  };
}

/** Returns the field manager: the named one, or the client's program, as upstream derives it. */
export function fieldManager(
  services: ApiServices,
  kind: Kind,
  context: RequestContext,
  options: RequestOptions,
): FieldManager {
  const program = (context.request.headers['user-agent'] ?? '').split('/')[0]?.slice(0, MAX_MANAGER_LENGTH);
  return {
    name: options.fieldManager || program || 'unknown',
    apiVersion: apiVersionOf(kind),
    subresource: context.info.subresource,
    now: new Date(services.clock.now()),
  };
}

/**
 * Returns the options of a write other than an apply. Writes of this process's own controllers are not tracked: that
 * would double the size of every Pod and EndpointSlice, and no client needs it.
 */
export function storeOptions(
  services: ApiServices,
  kind: Kind,
  context: RequestContext,
  options: RequestOptions,
  part: Part = 'main',
): WriteOptions {
  const manager = fieldManager(services, kind, context, options);
  return {
    dryRun: options.dryRun,
    requested: kind,
    part,
    record(before, after) {
      const schema = services.schema.patchSchema(apiVersionOf(kind), kind.kind);
      if (before) {
        const entries = after.metadata.managedFields ?? before.metadata.managedFields ?? [];
        if (entries.length > 0 && !isCleared(after)) recordUpdate(before, after, schema, manager);
        return;
      }
      if (context.request.internal) return;
      // The creator does not own the status of a new object; metadata is the same object in both.
      const { status, ...rest } = after;
      const recorded: ApiObject = kind.status && status !== undefined ? rest : after;
      const nothing = services.schema.empty(apiVersionOf(kind), kind.kind) as ApiObject;
      if (recorded !== after) delete nothing['status'];
      recordUpdate(nothing, recorded, schema, manager);
    },
  };
}

interface WrittenKind {
  readonly kind: string;
  readonly group: string;
  readonly version: string;
}

/**
 * Refuses, warns about or ignores unknown and duplicate fields, as `fieldValidation` requests. Throws StatusError 400.
 */
export function checkFields(
  services: ApiServices,
  kind: WrittenKind,
  body: Body,
  context: RequestContext,
  mode: FieldValidation,
): void {
  const problems = fieldProblems(services, kind, body);
  if (body.duplicateKey !== undefined) problems.push(body.duplicateKey);
  if (problems.length === 0 || mode === 'Ignore') return;
  if (mode === 'Strict')
    throw badRequest(`${handledAs(kind)}: strict decoding error: ${problems.join(', ')}`);
  for (const problem of problems) warn(context, problem);
}

/**
 * Checks the body of an apply. Fields and items that no manager can own are refused in every mode, duplicate fields of
 * the text as `fieldValidation` requests. Throws StatusError 400, or 500 as upstream.
 */
export function checkAppliedFields(
  services: ApiServices,
  kind: WrittenKind,
  body: Body,
  context: ResourceContext,
  mode: FieldValidation,
): void {
  const { duplicateKey } = body;
  if (duplicateKey !== undefined && mode === 'Strict') {
    throw badRequest(`error strict decoding YAML: yaml: unmarshal errors:\n  ${duplicateKey}`);
  }
  if (duplicateKey !== undefined && mode === 'Warn') warn(context, duplicateKey);
  const object = isObject(body.object) ? body.object : {};
  const metadata = isObject(object['metadata']) ? object['metadata'] : {};
  if (metadata['managedFields'] !== undefined && metadata['managedFields'] !== null) {
    throw badRequest('metadata.managedFields must be nil');
  }
  const apiVersion = kind.group === '' ? kind.version : `${kind.group}/${kind.version}`;
  const type = `${kind.group}/${kind.version}, Kind=${kind.kind}`;
  const what = `${metadata['namespace'] ?? ''}/${metadata['name'] ?? ''}; ${type}`;
  const problems = appliedProblems(object, services.schema.patchSchema(apiVersion, kind.kind));
  if (problems.length > 0) {
    const errors = problems.length === 1 ? problems[0] : `errors:\n  ${problems.join('\n  ')}`;
    throw new StatusError(500, '', `failed to create typed patch object (${what}): ${errors}`);
  }
  const wrong = services.schema.typeError(apiVersion, kind.kind, object);
  if (wrong !== null) {
    throw new StatusError(
      500,
      '',
      `failed to convert new object (${what}) to proper version: unable to convert unstructured object to ${type}: ${wrong}`,
    );
  }
  if (mode === 'Ignore' || body.json === null) return;
  // The applied object keeps its nulls: they are owned.
  for (const problem of services.schema.prune(apiVersion, kind.kind, structuredClone(object), body.json)) {
    if (mode === 'Strict') throw badRequest(`${handledAs(kind)}: strict decoding error: ${problem}`);
    if (mode === 'Warn') warn(context, problem);
  }
}

const handledAs = ({ kind, version }: WrittenKind) =>
  `${kind} in version ${JSON.stringify(version)} cannot be handled as a ${kind}`;

/** Removes unknown fields from a body and returns them with duplicate ones. Throws StatusError 400 for a wrong type. */
function fieldProblems(services: ApiServices, kind: WrittenKind, body: Body): string[] {
  if (!isObject(body.object)) return [];
  const apiVersion = kind.group === '' ? kind.version : `${kind.group}/${kind.version}`;
  const wrong = services.schema.typeError(apiVersion, kind.kind, body.object);
  if (wrong !== null) throw badRequest(`${handledAs(kind)}: ${wrong}`);
  return services.schema.prune(apiVersion, kind.kind, body.object, body.json);
}
