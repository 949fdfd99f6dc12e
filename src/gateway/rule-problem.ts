/** Why a rule of a route cannot be applied. `reason` is that of the route's condition. */
export interface RuleProblem {
  readonly reason: 'UnsupportedValue' | 'IncompatibleFilters';
  /** "FIELD: what is wrong", the field within the rule. */
  readonly message: string;
}

export const unsupported = (field: string, problem: string): RuleProblem => ({
  reason: 'UnsupportedValue',
  message: `${field}: ${problem}`,
});

export const isProblem = (value: object): value is RuleProblem => 'reason' in value && 'message' in value;
