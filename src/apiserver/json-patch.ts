import { ownMember, setOwnMember } from '../lib/own-member.ts';
import { equal, isObject, type Json, type JsonObject, jsonType } from './object.ts';
import { badRequest, StatusError } from './status-error.ts';

/** Maximum operations of one patch (upstream's limit). */
const MAX_OPERATIONS = 10_000;
/** Maximum bytes that the "copy" operations of one patch may copy in total, as JSON (upstream's limit). */
const MAX_COPIED_BYTES = 3 * 1024 * 1024;

/** A failed "test" operation. */
export class PatchTestError extends StatusError {}

/**
 * Applies a JSON patch (RFC 6902) to a copy. Throws StatusError: 400 for a body that is not a patch, 413 for too many
 * operations, 422 if it does not apply or copies too much.
 */
export function applyJsonPatch(document: JsonObject, patch: unknown): JsonObject {
  if (!Array.isArray(patch)) throw undecodable(patch, '[]handlers.jsonPatchOp');
  if (patch.length > MAX_OPERATIONS) {
    throw new StatusError(
      413,
      'RequestEntityTooLarge',
      `The allowed maximum operations in a JSON patch is ${MAX_OPERATIONS}, got ${patch.length}`,
    );
  }
  let result: Json = structuredClone(document);
  let copied = 0;
  for (const [i, operation] of patch.entries()) {
    if (!isObject(operation)) throw undecodable(operation, 'handlers.jsonPatchOp');
    const { op, path, from, value } = operation;
    if (typeof op !== 'string' || typeof path !== 'string') {
      throw doesNotApply(`operation ${i} needs "op" and "path"`);
    }
    const target = pointer(path);
    switch (op) {
      case 'add':
        result = add(result, target, required(value, op, path), path);
        break;
      case 'replace':
        read(result, target, path);
        result = add(remove(result, target, path), target, required(value, op, path), path);
        break;
      case 'remove':
        result = remove(result, target, path);
        break;
      case 'move':
      case 'copy': {
        if (typeof from !== 'string') throw doesNotApply(`operation ${i} needs "from"`);
        const source = read(result, pointer(from), from);
        if (op === 'copy') {
          copied += JSON.stringify(source).length;
          if (copied > MAX_COPIED_BYTES) {
            throw doesNotApply(`copy operations may copy ${MAX_COPIED_BYTES} bytes in all`);
          }
        }
        const moved = structuredClone(source);
        if (op === 'move') result = remove(result, pointer(from), from);
        result = add(result, target, moved, path);
        break;
      }
      case 'test':
        if (!equal(readOrNull(result, target, path), value ?? null)) {
          throw new PatchTestError(422, 'Invalid', `${REFUSAL}: test of ${path} failed`);
        }
        break;
      default:
        throw doesNotApply(`unknown operation ${JSON.stringify(op)}`);
    }
  }
  if (!isObject(result)) throw doesNotApply('the result is not an object');
  return result;
}

/** Applies a JSON merge patch (RFC 7386) to a copy. */
export function applyMergePatch(document: JsonObject, patch: unknown): JsonObject {
  if (!isObject(patch)) throw undecodable(patch, 'map[string]interface {}');
  const result: JsonObject = { ...document };
  for (const [field, value] of Object.entries(patch)) {
    if (value === null) delete result[field];
    else if (isObject(value)) setOwnMember(result, field, applyMergePatch(objectAt(result, field), value));
    else if (value !== undefined) setOwnMember(result, field, value);
  }
  return result;
}

function objectAt(object: JsonObject, field: string): JsonObject {
  const value = ownMember(object, field);
  return isObject(value) ? value : {};
}

/** Refuses the body of a patch in upstream's words: it cannot be decoded as `type`, a type of Go. */
function undecodable(body: unknown, type: string): StatusError {
  if (body === null) return badRequest('Invalid JSON Patch');
  return badRequest(
    `error decoding patch: json: cannot unmarshal ${jsonType(body)} into Go value of type ${type}`,
  );
}

const REFUSAL = 'the server rejected our request due to an error in our request';

function doesNotApply(message: string): StatusError {
  return new StatusError(422, 'Invalid', `${REFUSAL}: ${message}`);
}

function required(value: Json | undefined, op: string, path: string): Json {
  if (value === undefined) throw doesNotApply(`${op} ${path} needs "value"`);
  return structuredClone(value);
}

/** Splits a JSON pointer into tokens (RFC 6901). */
function pointer(text: string): string[] {
  if (text === '') return [];
  if (!text.startsWith('/')) throw doesNotApply(`path ${JSON.stringify(text)} must begin with "/"`);
  return text
    .slice(1)
    .split('/')
    .map((token) => token.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function read(document: Json, path: readonly string[], text: string): Json {
  let value: Json | undefined = document;
  for (const token of path) {
    if (Array.isArray(value)) value = value[index(token, value.length - 1, text)];
    else value = isObject(value) && Object.hasOwn(value, token) ? value[token] : undefined;
    if (value === undefined) throw doesNotApply(`no value at ${text}`);
  }
  return value;
}

/** Returns the value at a path; null for an absent member. */
function readOrNull(document: Json, path: readonly string[], text: string): Json {
  const last = path.at(-1);
  if (last === undefined) return document;
  const parent = read(document, path.slice(0, -1), text);
  return isObject(parent) && !Object.hasOwn(parent, last) ? null : read(document, path, text);
}

function add(document: Json, path: readonly string[], value: Json, text: string): Json {
  const last = path.at(-1);
  if (last === undefined) return value;
  const parent = read(document, path.slice(0, -1), text);
  if (Array.isArray(parent))
    parent.splice(last === '-' ? parent.length : index(last, parent.length, text), 0, value);
  else if (isObject(parent)) setOwnMember(parent, last, value);
  else throw doesNotApply(`${text} is not inside an object or a list`);
  return document;
}

function remove(document: Json, path: readonly string[], text: string): Json {
  const last = path.at(-1);
  if (last === undefined) return {};
  read(document, path, text);
  const parent = read(document, path.slice(0, -1), text);
  if (Array.isArray(parent)) parent.splice(index(last, parent.length - 1, text), 1);
  else if (isObject(parent)) delete parent[last];
  return document;
}

function index(token: string, most: number, text: string): number {
  const value = Number(token);
  if (!/^(0|[1-9][0-9]*)$/.test(token) || value > most) throw doesNotApply(`${text}: no item ${token}`);
  return value;
}
