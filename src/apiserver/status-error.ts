/** An invalid field, as meta/v1 StatusCause. */
export interface FieldError {
  readonly field: string;
  /** "FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported", "FieldValueForbidden", "FieldValueDuplicate". */
  readonly reason: string;
  readonly message: string;
}

export const invalid = (field: string, value: unknown, detail: string): FieldError => ({
  field,
  reason: 'FieldValueInvalid',
  message: `Invalid value: ${JSON.stringify(value)}: ${detail}`,
});
export const required = (field: string, detail = ''): FieldError => ({
  field,
  reason: 'FieldValueRequired',
  message: `Required value${detail === '' ? '' : `: ${detail}`}`,
});
export const notSupported = (field: string, value: unknown, choices: readonly string[]): FieldError => ({
  field,
  reason: 'FieldValueNotSupported',
  message: `Unsupported value: ${JSON.stringify(value)}: supported values: ${choices.map((c) => JSON.stringify(c)).join(', ')}`,
});
export const forbidden = (field: string, detail: string): FieldError => ({
  field,
  reason: 'FieldValueForbidden',
  message: `Forbidden: ${detail}`,
});
export const tooMany = (field: string, count: number, max: number): FieldError => ({
  field,
  reason: 'FieldValueTooMany',
  message: `Too many: ${count}: must have at most ${max} ${max === 1 ? 'item' : 'items'}`,
});
export const duplicate = (field: string, value: unknown): FieldError => ({
  field,
  reason: 'FieldValueDuplicate',
  message: `Duplicate value: ${JSON.stringify(value)}`,
});

/** A refusal in the form of meta/v1 Status, which kubectl and client-go understand. */
export class StatusError extends Error {
  override readonly name = 'StatusError';
  readonly code: number;
  readonly reason: string;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  /** meta/v1 ListMeta of the Status: the continue token after a list has expired. */
  readonly metadata: Readonly<Record<string, string>>;

  constructor(
    code: number,
    reason: string,
    message: string,
    details?: Readonly<Record<string, unknown>>,
    metadata: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.details = details;
    this.metadata = metadata;
  }

  /** Returns the Status object. */
  toJSON() {
    return {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: this.metadata,
      status: 'Failure',
      message: this.message,
      ...(this.reason === '' ? {} : { reason: this.reason }),
      ...(this.details ? { details: this.details } : {}),
      code: this.code,
    };
  }
}

interface KindNames {
  readonly group: string;
  readonly kind: string;
  readonly plural: string;
}

const qualified = (kind: KindNames) => (kind.group === '' ? kind.plural : `${kind.plural}.${kind.group}`);
const details = (kind: KindNames, name: string) => ({
  name,
  ...(kind.group === '' ? {} : { group: kind.group }),
  kind: kind.plural,
});

export const badRequest = (message: string) => new StatusError(400, 'BadRequest', message);
export const notFound = (kind: KindNames, name: string) =>
  new StatusError(
    404,
    'NotFound',
    `${qualified(kind)} ${JSON.stringify(name)} not found`,
    details(kind, name),
  );
export const alreadyExists = (kind: KindNames, name: string) =>
  new StatusError(
    409,
    'AlreadyExists',
    `${qualified(kind)} ${JSON.stringify(name)} already exists`,
    details(kind, name),
  );
export const conflict = (kind: KindNames, name: string, message: string) =>
  new StatusError(
    409,
    'Conflict',
    `Operation cannot be fulfilled on ${qualified(kind)} ${JSON.stringify(name)}: ${message}`,
    details(kind, name),
  );
export const expired = (message: string, metadata?: Readonly<Record<string, string>>) =>
  new StatusError(410, 'Expired', message, undefined, metadata);
export const methodNotAllowed = (message: string) => new StatusError(405, 'MethodNotAllowed', message, {});

/** Builds a 422 with one cause per field, in upstream's words. */
export function invalidObject(kind: KindNames, name: string, errors: readonly FieldError[]): StatusError {
  const texts = errors.map((error) => `${error.field}: ${error.message}`);
  const list = texts.length === 1 ? texts[0] : `[${texts.join(', ')}]`;
  const what = kind.group === '' ? kind.kind : `${kind.kind}.${kind.group}`;
  return new StatusError(422, 'Invalid', `${what} ${JSON.stringify(name)} is invalid: ${list}`, {
    ...(name === '' ? {} : { name }),
    ...(kind.group === '' ? {} : { group: kind.group }),
    kind: kind.kind,
    causes: errors.map(({ field, reason, message }) => ({ reason, message, field })),
  });
}

/**
 * Builds a 422 for an update without resourceVersion of a kind that requires it; upstream names the resource here, not
 * the kind.
 */
export function versionMissing(kind: KindNames, name: string): StatusError {
  const error = invalid('metadata.resourceVersion', 0, 'must be specified for an update');
  return invalidObject({ ...kind, kind: kind.plural }, name, [error]);
}

/** Builds the refusal of a field that is longer than allowed. */
export const tooLong = (field: string, most: number): FieldError => ({
  field,
  reason: 'FieldValueTooLong',
  message: `Too long: may not be more than ${most} bytes`,
});
