/** The end of a command: an exit code, or an error if it could not be run. */
export type CommandResult = { readonly code: number } | { readonly error: string };

/** Builds the content of the error channel from v4 of the protocol on: a meta/v1 Status. */
export function exitStatus(result: CommandResult): object {
  if ('error' in result) {
    return {
      metadata: {},
      status: 'Failure',
      message: result.error,
      reason: 'InternalError',
      details: { causes: [{ message: result.error }] },
      code: 500,
    };
  }
  if (result.code === 0) return { metadata: {}, status: 'Success' };
  return {
    metadata: {},
    status: 'Failure',
    message: `command terminated with non-zero exit code: exit status ${result.code}`,
    reason: 'NonZeroExitCode',
    details: { causes: [{ reason: 'ExitCode', message: String(result.code) }] },
  };
}

/** Builds the content of the error channel before v4: text, empty for success. */
export function exitText(result: CommandResult): string {
  if ('error' in result) return result.error;
  return result.code === 0 ? '' : `command terminated with non-zero exit code: exit status ${result.code}`;
}
