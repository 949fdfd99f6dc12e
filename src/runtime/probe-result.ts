/** The result of a probe, or of a hook with a probe's action. */
export interface ProbeResult {
  readonly ok: boolean;
  readonly message: string;
  /** It passed, but its message is an event. */
  readonly hasWarning?: boolean;
}
