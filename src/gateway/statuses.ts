/** The status that an object should have. */
export interface ObjectStatus {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  /**
   * Without `addresses`, and conditions without `lastTransitionTime`: the writer adds both. `parents` and `ancestors` are
   * those of this controller: the writer keeps those of others.
   */
  readonly status: Readonly<Record<string, unknown>>;
}
