import { matchingCost, traversal } from './traversal-cost.ts';

/** Two checks fit into one expression's limit (k8s.io/apiserver/pkg/cel/library/cost.go). */
const AUTHORIZATION_CHECK = 350_000;

/**
 * Copies of lists are free in upstream, which links them; here each is made. A hundredth keeps small lists free and
 * bounds what a rule can have copied.
 */
const COPIED_ITEM = 0.01;

/** Returns the size that upstream charges for: characters, bytes, items, members; 1 for other values. */
export function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 1;
  if (Array.isArray(value) || value instanceof Uint8Array) return value.length;
  if (value instanceof Map || value instanceof Set) return value.size;
  return Object.getPrototypeOf(value) === Object.prototype ? memberCount(value) : 1;
}

function memberCount(value: object): number {
  let count = 0;
  for (const _name in value) count++;
  return count;
}

/** Returns the cost of an operator by its operands (cel-go interpreter/runtimecost.go). */
export function operatorCost(operator: string, left: unknown, right: unknown): number {
  switch (operator) {
    case 'in':
      return Array.isArray(right) ? right.length : 1;
    case '==':
    case '!=':
    case '<':
    case '<=':
    case '>':
    case '>=':
      return traversal(Math.min(sizeOf(left), sizeOf(right)));
    case '+':
      if (typeof left === 'string' || left instanceof Uint8Array) {
        return traversal(sizeOf(left) + sizeOf(right));
      }
      return Array.isArray(left) ? 1 + Math.floor((left.length + sizeOf(right)) * COPIED_ITEM) : 1;
    default:
      return 1;
  }
}

/**
 * Returns the cost of a function by its arguments, the receiver first. Sources: cel-go interpreter/runtimecost.go,
 * ext/sets.go, k8s.io/apiserver/pkg/cel/library/cost.go.
 */
export function callCost(name: string, args: readonly unknown[]): number {
  const [first, second, third] = args;
  switch (name) {
    case 'check':
      return AUTHORIZATION_CHECK;
    case 'isSorted':
    case 'sum':
    case 'min':
    case 'max':
    case 'indexOf':
    case 'lastIndexOf':
      return listTraversal(first);
    case 'startsWith':
    case 'endsWith':
    case 'bytes':
    case 'url':
    case 'lowerAscii':
    case 'upperAscii':
    case 'substring':
    case 'trim':
    case 'cidr':
    case 'isCIDR':
    case 'ip':
    case 'isIP':
    case 'quantity':
    case 'isQuantity':
      return Math.max(1, traversal(sizeOf(first)));
    case 'string':
      return first instanceof Uint8Array ? traversal(first.length) : 1;
    case 'replace':
    case 'split':
      return traversal(2 * sizeOf(first));
    case 'join':
      return traversal(2 * joinedSize(first, second));
    case 'matches':
    case 'matches_re2':
    case 'find':
    case 'findAll':
      return matchingCost(sizeOf(first), sizeOf(second));
    case 'containsIP':
      return traversal(2 * prefixBytes(first)) + textCost(second);
    case 'containsCIDR':
      return traversal(2 * prefixBytes(first)) + traversal(prefixBytes(first)) + 1 + textCost(second);
    case 'contains':
      if (typeof first === 'string') return traversal(sizeOf(first)) * traversal(sizeOf(second));
      return setCost(name, second, third);
    case 'intersects':
    case 'equivalent':
      return setCost(name, second, third);
    default:
      return 1;
  }
}

/** Returns the bytes of a network's prefix. */
const prefixBytes = (network: unknown): number =>
  Math.ceil(((network as { cidr?: { prefix: number } } | null)?.cidr?.prefix ?? 0) / 8);

/** A text is parsed first; an address or a network is not. */
const textCost = (argument: unknown): number =>
  typeof argument === 'string' ? traversal(argument.length) : 0;

/** Sets are compared item by item; of equivalent ones in both directions (cel-go ext/sets.go). */
function setCost(name: string, left: unknown, right: unknown): number {
  const pairs = sizeOf(left) * sizeOf(right);
  return 1 + (name === 'equivalent' ? 2 * pairs : pairs);
}

function listTraversal(value: unknown): number {
  if (!Array.isArray(value)) return traversal(sizeOf(value));
  let cost = 0;
  for (const item of value) cost += typeof item === 'string' ? traversal(item.length) : 1;
  return cost;
}

function joinedSize(list: unknown, separator: unknown): number {
  if (!Array.isArray(list)) return 0;
  let size = Math.max(0, list.length - 1) * (typeof separator === 'string' ? separator.length : 0);
  for (const item of list) size += sizeOf(item);
  return size;
}
