/**
 * A role in the form of the generated file. A rule is "VERBS GROUPS RESOURCES [NAMES]" or "VERBS PATHS"; lists are
 * separated by commas.
 */
export interface BootstrapRole {
  readonly name: string;
  readonly namespace?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** The labels of the roles whose rules are aggregated, one set for each selector. */
  readonly aggregates?: readonly Readonly<Record<string, string>>[];
  readonly rules: readonly string[];
}

export interface BootstrapBinding {
  readonly name: string;
  readonly namespace?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** "ClusterRole/NAME" or "Role/NAME". */
  readonly role: string;
  /** "User/NAME", "Group/NAME" or "ServiceAccount/NAMESPACE/NAME". */
  readonly subjects: readonly string[];
}
