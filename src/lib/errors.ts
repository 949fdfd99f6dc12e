import type { ErrorCode } from './error-codes.ts';

/** Details of an error in addition to its message. */
export interface ErrorDetails {
  /** The operation that failed: "open netlink socket", "load image". */
  readonly op: string;
  /** A stable code: an errno name ("EEXIST"), or one of Fairlead's codes ("not-root", "bad-config"). */
  readonly code: ErrorCode;
  /** A possible fix for the user. */
  readonly hint?: string;
  /** The object of the failed operation: an object's name, a field path, a message. */
  readonly object?: string;
  readonly cause?: unknown;
}

/** An error that names the operation, the reason and a possible fix. */
export class FairleadError extends Error {
  override readonly name = 'FairleadError';
  readonly op: string;
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly object: string | undefined;

  constructor(message: string, details: ErrorDetails) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.op = details.op;
    this.code = details.code;
    this.hint = details.hint;
    this.object = details.object;
  }
}

/** Returns true if `error` is a FairleadError or a Node.js system error with one of these codes. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' && codes.includes(code);
}

/** Returns true if a write failed because the disk, or the user's quota, is full. */
export function isDiskFull(error: unknown): boolean {
  return hasCode(error, 'ENOSPC', 'EDQUOT');
}

const FILE_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  EACCES: 'permission denied',
  EISDIR: 'it is a folder',
  ENOTDIR: 'part of the path is not a folder',
};

/** Returns the reason why a file cannot be read, without the path that Node.js repeats in its message. */
export function fileProblem(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return (typeof code === 'string' && FILE_PROBLEMS[code]) || messageOf(error);
}

/** Returns any thrown value as an Error. */
export const errorOf = (thrown: unknown): Error =>
  thrown instanceof Error ? thrown : new Error(String(thrown));

/** Returns an error's message with its hint, for users who see only the message. */
export function describeError(error: unknown): string {
  const hint = error instanceof FairleadError ? error.hint : undefined;
  return hint ? `${messageOf(error)} (${hint})` : messageOf(error);
}

/** Returns the message of any thrown value. */
export function messageOf(error: unknown): string {
  // A connection attempt at several addresses has messages only in its parts.
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}
