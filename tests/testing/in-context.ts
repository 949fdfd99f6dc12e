import { AssertionError } from 'node:assert';

/**
 * Runs checks, and appends a text to the message of the one that fails: what differs comes first, then what it was found in.
 * A message that is passed to the assertion itself hides the difference.
 */
export function inContext(text: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof AssertionError)) throw error;
    throw new AssertionError({ message: `${error.message}\n\n${text}`, stackStartFn: inContext });
  }
}
