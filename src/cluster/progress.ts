/** Tells the user how far a command is. */
export interface Progress {
  step(what: string, detail?: string): void;
  done(advice: string): void;
}
