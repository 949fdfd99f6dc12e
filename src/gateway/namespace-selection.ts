import { matchesExpression } from '../kube/selector.ts';
import { identityOf, labelsOf } from './identity.ts';
import type { GatewayObject } from './objects.ts';
import { list, type Raw, record, text } from './raw.ts';

export type NamespaceLabels = ReadonlyMap<string, Readonly<Record<string, string>>>;

/** The namespaces that a Gateway lets objects attach from. */
export type NamespaceSelection = (namespace: string) => boolean;

const OPERATORS = ['In', 'NotIn', 'Exists', 'DoesNotExist'];

export function indexNamespaces(namespaces: readonly GatewayObject[]): NamespaceLabels {
  const index = new Map<string, Readonly<Record<string, string>>>();
  for (const object of namespaces) {
    const identity = identityOf(object, false);
    if (identity) index.set(identity.name, labelsOf(object));
  }
  return index;
}

/** Reads `namespaces` of allowedRoutes or allowedListeners. What cannot be read selects nothing. */
export function readNamespaceSelection(
  value: Raw,
  standard: 'Same' | 'None',
  own: string,
  labels: NamespaceLabels,
): NamespaceSelection {
  const from = value['from'] === undefined || value['from'] === null ? standard : value['from'];
  if (from === 'All') return () => true;
  if (from === 'Same') return (namespace) => namespace === own;
  if (from !== 'Selector') return () => false;
  const selects = readSelector(value['selector']);
  return (namespace) => {
    const found = labels.get(namespace);
    return selects !== null && found !== undefined && selects(found);
  };
}

type LabelTest = (labels: Readonly<Record<string, string>>) => boolean;

/** Returns the test of a label selector; null if any part of it cannot be read. */
function readSelector(value: unknown): LabelTest | null {
  if (value === undefined || value === null) return null;
  const selector = record(value);
  const tests: LabelTest[] = [];
  for (const [key, wanted] of Object.entries(record(selector['matchLabels']))) {
    if (typeof wanted !== 'string') return null;
    tests.push((labels) => Object.hasOwn(labels, key) && labels[key] === wanted);
  }
  for (const item of list(selector['matchExpressions'])) {
    const expression = record(item);
    const key = text(expression['key']);
    const operator = text(expression['operator']);
    const values = list(expression['values']);
    if (key === '' || !OPERATORS.includes(operator) || !values.every((one) => typeof one === 'string'))
      return null;
    tests.push((labels) =>
      matchesExpression(
        operator,
        Object.hasOwn(labels, key) ? labels[key] : undefined,
        values as readonly string[],
      ),
    );
  }
  return (labels) => tests.every((test) => test(labels));
}
