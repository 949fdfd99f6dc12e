import { FairleadError, messageOf } from '../lib/errors.ts';

/** Renders an error for the user: the failure, the object, the causes and the hint. Ends with a newline. */
export function renderError(error: unknown): string {
  if (!(error instanceof FairleadError)) {
    const stack = error instanceof Error && process.env['FAIRLEAD_DEBUG'] ? `\n${error.stack}` : '';
    return `fairlead: ${messageOf(error)}${stack}\n`;
  }
  const lines = [`fairlead: ${error.message}`];
  if (error.object && !error.message.includes(error.object)) lines.push(`  in: ${error.object}`);
  for (let cause = error.cause; cause !== undefined; cause = (cause as { cause?: unknown }).cause) {
    const text = messageOf(cause);
    if (!lines[0]?.includes(text)) lines.push(`  because: ${text}`);
    if (typeof cause !== 'object' || cause === null) break;
  }
  if (error.hint) lines.push(`  try: ${error.hint}`);
  if (process.env['FAIRLEAD_DEBUG'] && error.stack) lines.push(error.stack);
  return `${lines.join('\n')}\n`;
}
