/** Reports the progress of a command to the user. */
export interface Progress {
  step(what: string, detail?: string): void;
  done(advice: string): void;
}
