/** The result of one check. "note": information; "problem": the agent would not work. */
export interface Finding {
  readonly level: 'ok' | 'note' | 'problem';
  readonly what: string;
  /** The fix, or null. */
  readonly fix: string | null;
}
