import { messageOf } from '../../../lib/errors.ts';
import { appliedProblems } from '../../applied-types.ts';
import { CelError } from '../../cel/cel-error.ts';
import { ObjectValue, PartValue, PatchValue, typeMismatch } from '../../cel/object-literals.ts';
import type { RequestPrograms } from '../../cel/request-program.ts';
import { fromCel } from '../../cel/request-values.ts';
import { listMerge } from '../../field-set.ts';
import { applyJsonPatch, PatchTestError } from '../../json-patch.ts';
import { type ApiObject, at, isObject, type Json, type JsonObject, textAt } from '../../object.ts';
import type { FieldSchema } from '../../schema/patch-schema.ts';
import type { SchemaService } from '../../schema-service.ts';
import { mergeApplied } from '../../server-side-apply.ts';
import { StatusError } from '../../status-error.ts';

/** A mutation that could not be applied; the message is the reason. */
export class MutationError extends Error {
  override readonly name = 'MutationError';
}

/** Returns the path of a mutation's expression, and the type that it must have. */
export function expressionOf(mutation: JsonObject): { field: string; text: string; type: string } {
  const field = mutation['patchType'] === 'JSONPatch' ? 'jsonPatch' : 'applyConfiguration';
  const type = field === 'jsonPatch' ? 'list(JSONPatch)' : 'Object';
  return { field, text: textAt(at(mutation, field), 'expression'), type };
}

/** Returns the problem with the type of a mutation's expression; null if none is known before evaluation. */
export function typeProblem(mutation: JsonObject, type: string): string | null {
  const wanted = expressionOf(mutation).type;
  const fits =
    wanted === 'Object' ? type === 'Object' : type === 'list' || /^list<(JSONPatch|dyn|T)>$/.test(type);
  if (fits || type === 'dyn') return null;
  const got = type === 'ObjectPart' ? 'a part of Object' : type.replace(/<(.*)>$/, '($1)');
  return `must evaluate to ${wanted} but got ${got}`;
}

/**
 * Returns the object after a mutation. Throws CelError if the expression fails, MutationError if its result does not
 * fit the object, StatusError 500 for a JSON patch that produces an invalid object.
 */
export async function mutated(
  programs: RequestPrograms,
  schema: SchemaService,
  mutation: JsonObject,
  object: ApiObject,
  variables: Readonly<Record<string, unknown>>,
): Promise<ApiObject> {
  const { text, type } = expressionOf(mutation);
  let value: unknown;
  try {
    value = await programs.compile(text).evaluate(variables);
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    throw new CelError(`expression '${text}' resulted in error: ${error.message}`);
  }
  return type === 'Object' ? applied(schema, object, value) : patched(schema, object, value);
}

function applied(schema: SchemaService, object: ApiObject, value: unknown): ApiObject {
  if (!(value instanceof ObjectValue) || value instanceof PartValue) {
    throw new MutationError('must evaluate to Object');
  }
  const mismatch = typeMismatch(value, 'Object');
  if (mismatch) throw new MutationError(`type mismatch: ${mismatch}`);
  const { apiVersion, kind } = object;
  const configuration = { ...(fromCel(value) as JsonObject), apiVersion, kind };
  const fields = schema.patchSchema(apiVersion, kind);
  const [problem = null] = appliedProblems(configuration, fields);
  const wrongType = problem ?? schema.typeError(apiVersion, kind, configuration);
  if (wrongType) {
    throw new MutationError(
      `error applying patch: failed to convert patch object to typed object: ${wrongType}`,
    );
  }
  const atomics = atomicPaths(configuration, fields, '');
  if (atomics.length > 0) {
    throw new MutationError(
      `error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: ${atomics.join(', ')}`,
    );
  }
  return mergeApplied(object as JsonObject, configuration, fields) as ApiObject;
}

/**
 * Returns the paths of values that would be replaced as a whole: naming one item of such a list would drop the others.
 */
function atomicPaths(value: Json, schema: FieldSchema | null, path: string): string[] {
  if (!schema) return [];
  if (Array.isArray(value)) {
    const own = schema.kind === 'list' && listMerge(schema) === null ? [path] : [];
    return [...own, ...value.flatMap((item, i) => atomicPaths(item, schema.items, `${path}[${i}]`))];
  }
  if (!isObject(value)) return [];
  const below = Object.entries(value).flatMap(([name, member]) =>
    member === undefined ? [] : atomicPaths(member, schema.field(name), `${path}.${name}`),
  );
  return [...(schema.atomic ? [path] : []), ...below];
}

function patched(schema: SchemaService, object: ApiObject, value: unknown): ApiObject {
  if (!Array.isArray(value)) throw new MutationError('type mismatch: the expression must evaluate to a list');
  const operations = value.map((operation: unknown) => {
    if (!(operation instanceof PatchValue)) {
      throw new MutationError('type mismatch: the expression must evaluate to a list of JSONPatch');
    }
    const mismatch = typeMismatch(operation.value);
    if (mismatch) throw new MutationError(`type mismatch: ${mismatch}`);
    return {
      op: operation.op,
      path: operation.path,
      ...(operation.from === '' ? {} : { from: operation.from }),
      ...(operation.value === undefined ? {} : { value: fromCel(operation.value) }),
    };
  });
  let result: ApiObject;
  try {
    result = applyJsonPatch(object as JsonObject, operations) as unknown as ApiObject;
  } catch (error) {
    // A failed "test" operation is a condition of the patch.
    if (error instanceof PatchTestError) return object;
    throw new MutationError(`JSON Patch: ${messageOf(error)}`);
  }
  const { apiVersion, kind } = object;
  const typeError = schema.typeError(apiVersion, kind, result);
  const [unknown] = typeError ? [] : schema.prune(apiVersion, kind, result, null);
  const problem = typeError ?? (unknown && `strict decoding error: ${unknown}`);
  if (problem) throw new StatusError(500, 'InternalError', `Internal error occurred: ${problem}`);
  return result;
}
