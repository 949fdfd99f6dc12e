/** The ranges of code points of a Unicode class, and of what is not in it, as UTF-16 units. */
export interface UnicodeClass {
  readonly name: string;
  readonly isNegated: boolean;
  /** Characters of the basic plane, as the inside of a class: "\u0041-\u005a". */
  readonly basic: string;
  /** Alternatives of pairs of surrogates; empty: none. */
  readonly pairs: readonly string[];
}

const known = new Map<string, UnicodeClass>();

/** General categories of Go's package unicode, which has no class of unassigned code points. */
const CATEGORY = /^(?:C[cfos]|L[lmotu]|M[cen]|N[dlo]|P[cdefios]|S[ckmo]|Z[lps]|[LMNPSZ])$/;
const ASSIGNED_OTHERS = '\\p{Cc}\\p{Cf}\\p{Cs}\\p{Co}';

/**
 * Returns a class of RE2 (`\p{Lu}`, `\p{Greek}`), for expressions without the flag u; null for an unknown name. Each is
 * computed once; there are some two hundred names.
 */
export function unicodeClass(name: string, isNegated: boolean): UnicodeClass | null {
  const key = `${isNegated ? '^' : ''}${name}`;
  const found = known.get(key);
  if (found !== undefined) return found;
  const inside = membersOf(name);
  // Names of clients are not kept.
  if (inside === null) return null;
  const units = inUnits(new RegExp(`[${isNegated ? '^' : ''}${inside}]+`, 'gu'));
  const computed = { name, isNegated, ...units };
  known.set(key, computed);
  return computed;
}

function membersOf(name: string): string | null {
  if (name === 'Any') return '\\p{Any}';
  if (name === 'C') return ASSIGNED_OTHERS;
  if (CATEGORY.test(name)) return `\\p{${name}}`;
  if (!/^[A-Z][A-Za-z_]{2,40}$/.test(name)) return null;
  try {
    const text = `\\p{Script=${name}}`;
    new RegExp(text, 'u');
    return text;
  } catch {
    return null;
  }
}

function inUnits(one: RegExp): Pick<UnicodeClass, 'basic' | 'pairs'> {
  let basic = '';
  const pairs: string[] = [];
  for (const [from, to] of rangesOf(one)) {
    if (from <= 0xffff) basic += range(from, Math.min(to, 0xffff));
    if (to > 0xffff) pairs.push(...pairsOf(Math.max(from, 0x10000), to));
  }
  return { basic, pairs };
}

const SURROGATES = [0xd800, 0xe000] as const;
const BASIC_UNITS = 0x10000 - (SURROGATES[1] - SURROGATES[0]);

/** Yields the ranges of code points, without surrogates, that an expression of one class and "+" matches. */
function* rangesOf(one: RegExp): Generator<readonly [number, number]> {
  for (const { 0: found, index } of allCharacters().matchAll(one)) {
    const [from, to] = [codeAt(index), codeAt(index + found.length - 1)];
    if (from < SURROGATES[0] && to >= SURROGATES[1]) {
      yield [from, SURROGATES[0] - 1];
      yield [SURROGATES[1], to];
    } else yield [from, to];
  }
}

/** Returns all characters in the order of their codes. */
function allCharacters(): string {
  let text = '';
  for (let first = 0; first < 0x110000; first += 0x800)
    if (first !== SURROGATES[0])
      text += String.fromCodePoint(...Array.from({ length: 0x800 }, (_, at) => first + at));
  return text;
}

/** Returns the code of the character at an index of allCharacters. */
function codeAt(index: number): number {
  if (index < SURROGATES[0]) return index;
  if (index < BASIC_UNITS) return index + SURROGATES[1] - SURROGATES[0];
  return 0x10000 + ((index - BASIC_UNITS) >> 1);
}

/** Returns the pairs of surrogates of code points beyond the basic plane. */
function pairsOf(from: number, to: number): string[] {
  const units = (code: number): readonly [number, number] => [
    0xd800 + ((code - 0x10000) >> 10),
    0xdc00 + ((code - 0x10000) & 0x3ff),
  ];
  const [[first, low], [last, high]] = [units(from), units(to)];
  const pair = (one: number, other: number, least: number, most: number) =>
    `[${range(one, other)}][${range(least, most)}]`;
  if (first === last) return [pair(first, first, low, high)];
  const between = last - first > 1 ? [pair(first + 1, last - 1, 0xdc00, 0xdfff)] : [];
  return [pair(first, first, low, 0xdfff), ...between, pair(last, last, 0xdc00, high)];
}

const unit = (code: number): string => `\\u${code.toString(16).padStart(4, '0')}`;
const range = (from: number, to: number): string => (from === to ? unit(from) : `${unit(from)}-${unit(to)}`);
