import { ownMember } from '../lib/own-member.ts';
import type { LabelSelector } from './types.ts';

type Labels = Readonly<Record<string, string>> | undefined;

/** Evaluates a meta/v1 LabelSelector. Null selects nothing, an empty selector everything. */
export function selects(selector: LabelSelector | null | undefined, labels: Labels): boolean {
  if (!selector) return false;
  const { matchLabels, matchExpressions } = selector;
  if (matchLabels && !hasLabels(matchLabels, labels)) return false;
  if (!matchExpressions) return true;
  for (const { key, operator, values = [] } of matchExpressions)
    if (!matchesExpression(operator, ownMember(labels, key), values)) return false;
  return true;
}

/** Reports whether `labels` contains all of `wanted`: the selector of a Service. */
export function hasLabels(wanted: Readonly<Record<string, string>>, labels: Labels): boolean {
  for (const key in wanted) if (labels?.[key] !== wanted[key]) return false;
  return true;
}

/** Evaluates one expression of a label selector or of a node selector (which also supports Gt and Lt). */
export function matchesExpression(
  operator: string,
  value: string | undefined,
  values: readonly string[],
): boolean {
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'Gt':
      return value !== undefined && Number(value) > Number(values[0]);
    case 'Lt':
      return value !== undefined && Number(value) < Number(values[0]);
    default:
      return false;
  }
}
