/** The cost of one unit of a text or a list where a function or an operator walks through it (cel-go common/cost.go). */
const TRAVERSAL = 0.1;
const REGEXP = 0.25;

/** Returns what it costs to walk through a text or a list of this size. */
export const traversal = (size: number): number => Math.ceil(size * TRAVERSAL);

/** Returns what it costs to match a text of this size with a pattern of that. */
export const matchingCost = (text: number, pattern: number): number =>
  product(traversal(text + 1), Math.ceil(pattern * REGEXP));

/** Multiplies sizes or costs, of which one may be infinite. */
export const product = (a: number, b: number): number => (a === 0 || b === 0 ? 0 : a * b);
