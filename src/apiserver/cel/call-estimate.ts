import type { Estimate } from './estimate.ts';
import { MATCHES } from './syntax-tree.ts';
import { matchingCost, product, traversal } from './traversal-cost.ts';

export interface CallEstimate {
  readonly cost: number;
  /** Of the result; absent if it is not known. */
  readonly size?: number;
  /** Of each item of a list; absent if it is not known. */
  readonly itemSize?: number;
}

/** The bytes of an address, at most. */
const ADDRESS = 16;

/**
 * Estimates a function by its arguments, without what these cost. Sources: cel-go checker/cost.go, ext/sets.go,
 * k8s.io/apiserver/pkg/cel/library/cost.go.
 */
export function callEstimate(name: string, target: Estimate | null, args: readonly Estimate[]): CallEstimate {
  const [first, second] = args;
  const argument = first?.size ?? 0;
  if (!target) return functionEstimate(name, argument, second?.size ?? 0);
  const { size } = target;
  switch (name) {
    case 'startsWith':
    case 'endsWith':
      return { cost: traversal(argument) };
    case 'contains':
      return { cost: product(traversal(size), traversal(argument)) };
    case 'matches':
    case MATCHES:
      return { cost: matchingCost(size, argument) };
    case 'find':
    case 'findAll':
      return { cost: matchingCost(size, argument), size };
    case 'lowerAscii':
    case 'upperAscii':
    case 'substring':
    case 'trim':
      return { cost: traversal(size), size };
    case 'split':
      // A part is as long as the text, at most.
      return { cost: traversal(2 * size), size, itemSize: size };
    case 'replace':
      return { cost: traversal(2 * size), size: replacedSize(size, first, second) };
    case 'join': {
      const separators = product(argument, Math.max(0, size - 1));
      const joined = product(size, elementSize(target)) + (first ? separators : 0);
      return { cost: traversal(joined), size: joined };
    }
    case 'isSorted':
    case 'sum':
    case 'min':
    case 'max':
    case 'indexOf':
    case 'lastIndexOf':
      return { cost: target.type.kind === 'list' ? product(size, 1 + elementCost(target)) : traversal(size) };
    case 'containsIP':
      return { cost: traversal(2 * ADDRESS) + textCost(first) };
    case 'containsCIDR':
      return { cost: traversal(2 * ADDRESS) + traversal(ADDRESS) + 1 + textCost(first) };
    case 'format':
      return { cost: traversal(size) };
    default:
      return { cost: 1 };
  }
}

function functionEstimate(name: string, first: number, second: number): CallEstimate {
  switch (name) {
    case 'sets.contains':
    case 'sets.intersects':
      return { cost: product(first, second) + 1 };
    case 'sets.equivalent':
      return { cost: 2 * product(first, second) + 1 };
    case 'url':
    case 'ip':
    case 'isIP':
    case 'cidr':
    case 'isCIDR':
    case 'quantity':
    case 'isQuantity':
      return { cost: traversal(first) };
    case 'bytes':
      return { cost: traversal(first), size: first * 4 };
    case 'matches':
    case MATCHES:
      return { cost: matchingCost(first, second) };
    default:
      return { cost: 1 };
  }
}

/** A text is parsed first; an address or a network is not. */
const textCost = (argument: Estimate | undefined): number =>
  argument?.type.kind === 'simple' && argument.type.name === 'string' ? traversal(argument.size) : 0;

/** Returns the size of a list's items: only what the schema says counts. */
const elementSize = ({ place }: Estimate): number => place?.item?.max ?? Number.POSITIVE_INFINITY;

function elementCost(list: Estimate): number {
  const { type } = list;
  const isText =
    type.kind === 'list' && type.item.kind === 'simple' && /^(string|bytes)$/.test(type.item.name);
  return isText ? traversal(elementSize(list)) : 0;
}

/** Returns the size of a text after a replacement, which may have made it longer. */
function replacedSize(size: number, from: Estimate | undefined, to: Estimate | undefined): number {
  const least = typeof from?.constant === 'string' ? from.size : 0;
  const longest = to?.size ?? 0;
  if (least === 0) return product(size + 1, longest) + size;
  return longest <= least ? size : product(Math.ceil(size / least), longest);
}
