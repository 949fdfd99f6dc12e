import type { FairleadError } from '../lib/errors.ts';

/** Reports the progress of a command to the user. */
export interface Progress {
  step(what: string, detail?: string): void;
  /** Reports a failure that does not end the command. */
  problem(error: FairleadError): void;
  /** Shows a warning of the API server. */
  warning(text: string): void;
  done(advice: string): void;
}
