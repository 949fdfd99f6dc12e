/** Specs that cannot pass on `fairlead up` by its nature or the machine's, and why. */
export interface NotApplicable {
  /** Part of the spec's name. */
  readonly name: string;
  readonly reason: string;
  /** Only in these modes; all where left out. */
  readonly modes?: readonly string[];
}

export const NOT_APPLICABLE: readonly NotApplicable[] = [];

/** Why a spec is not applicable in a mode, or null when it is. */
export function notApplicable(spec: string, mode: string): string | null {
  const row = NOT_APPLICABLE.find(
    ({ name, modes }) => spec.includes(name) && (modes === undefined || modes.includes(mode)),
  );
  return row?.reason ?? null;
}
