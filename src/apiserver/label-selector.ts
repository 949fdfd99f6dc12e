import { isObject, type JsonObject } from './object.ts';

/** Reports whether labels satisfy a meta/v1 LabelSelector; the empty selector matches everything. */
export function selectorMatches(selector: JsonObject, labels: Readonly<Record<string, string>>): boolean {
  const wanted = isObject(selector['matchLabels']) ? selector['matchLabels'] : {};
  for (const [key, value] of Object.entries(wanted)) if (labels[key] !== value) return false;
  const expressions = Array.isArray(selector['matchExpressions']) ? selector['matchExpressions'] : [];
  return expressions.every((expression) => {
    if (!isObject(expression)) return false;
    const key = String(expression['key']);
    const values = Array.isArray(expression['values']) ? expression['values'] : [];
    const present = Object.hasOwn(labels, key);
    switch (expression['operator']) {
      case 'In':
        return present && values.includes(labels[key] ?? '');
      case 'NotIn':
        return !present || !values.includes(labels[key] ?? '');
      case 'Exists':
        return present;
      case 'DoesNotExist':
        return !present;
      default:
        return false;
    }
  });
}
