/** What an error carries besides its message. */
export interface ErrorDetails {
  /** The operation that failed, in words a user would use: "open netlink socket", "load image". */
  readonly op: string;
  /** A stable code: an errno name ("EEXIST"), or one of Fairlead's own ("not-root", "bad-config"). */
  readonly code: string;
  /** The way out: what the user can do or change. */
  readonly hint?: string;
  /** What was being written or read when it failed: an object's name, a field path, a message. */
  readonly object?: string;
  readonly cause?: unknown;
}

/** The one error class: names the operation, the reason and the way out. */
export class FairleadError extends Error {
  override readonly name = 'FairleadError';
  readonly op: string;
  readonly code: string;
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

/** True when `error` is a FairleadError, or a Node.js system error, with this code. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' && codes.includes(code);
}

/** The message of anything thrown. */
export function messageOf(error: unknown): string {
  // A connection that was tried at several addresses says nothing itself.
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}
