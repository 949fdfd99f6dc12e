import type { ValueSize } from './schema-size.ts';
import type { CelType } from './types.ts';

/** The estimate of a part of an expression. */
export interface Estimate {
  /** The most that its evaluation costs. */
  readonly cost: number;
  /** The most characters, items or members of its value; infinite if unknown. */
  readonly size: number;
  /** Of each item of a list that the expression makes; null if unknown. */
  readonly itemSize: number | null;
  /** The part of the schema that it reads; null if it does not read the object. */
  readonly place: ValueSize | null;
  readonly type: CelType;
  readonly constant: unknown;
}
