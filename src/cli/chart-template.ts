import { isDeepStrictEqual } from 'node:util';

/**
 * Writes one template of Helm for several variants of an object. What all variants have is written once; what only some have
 * is inside a condition on the chart's values.
 */

/** Which value each dimension has in a variant, such as { parts: 'all', pool: 'true' }. */
export type Variant = Readonly<Record<string, string>>;

/** Returns the condition under which a dimension has one of these values. */
export type Conditions = Readonly<Record<string, (values: readonly string[]) => string>>;

/** A field whose value is an expression of the template; it is left out while the expression is empty. */
const EXPRESSION = Symbol('expression');
/** Entries of a map that an expression adds to its own. */
const FURTHER = Symbol('further entries');
/** Text before a map that is a text in its object. */
const NOTE = Symbol('note');

export interface Expression {
  readonly [EXPRESSION]: string;
  /** "json": in one line; "yaml": as a block; "text": quoted; "number": as it is, even if it is 0. */
  readonly form: 'json' | 'yaml' | 'text' | 'number';
}

export const expression = (text: string, form: Expression['form']): Expression => ({
  [EXPRESSION]: text,
  form,
});
/** Returns a map with further entries by an expression. */
export const withFurther = (map: object, text: string): object => ({ ...map, [FURTHER]: text });
/** Returns a map that becomes a text in YAML, which begins with a note. */
export const asText = (map: object, note: string): object => ({ ...map, [NOTE]: note });

type Case = readonly [variant: Variant, value: unknown];

/**
 * Returns the lines of a template for an object that exists in some of all variants. Throws if variants differ in a way that
 * is not a condition on each dimension by itself.
 */
export function templateLines(
  cases: readonly Case[],
  all: readonly Variant[],
  conditions: Conditions,
): string[] {
  const writer = createWriter(conditions);
  return writer.guarded(cases, all, (some) => writer.value(some, 0));
}

function createWriter(conditions: Conditions) {
  /** Returns the condition for `some` of `all` variants; null: they are the same. */
  function condition(some: readonly Variant[], all: readonly Variant[]): string | null {
    if (some.length === all.length) return null;
    const terms: string[] = [];
    let selected = all;
    for (const [dimension, term] of Object.entries(conditions)) {
      const valuesOf = (variants: readonly Variant[]) => [
        ...new Set(variants.map((one) => one[dimension] ?? '')),
      ];
      const values = valuesOf(some);
      if (values.length === valuesOf(all).length) continue;
      terms.push(term(values));
      selected = selected.filter((one) => values.includes(one[dimension] ?? ''));
    }
    // Invariant: the variants of a chart are those of its own options, which chart-files.ts lists.
    if (selected.length !== some.length)
      throw new Error(`no condition on each dimension selects ${JSON.stringify(some)}`);
    return terms.length === 1 ? (terms[0] ?? '') : `and ${terms.map((term) => `(${term})`).join(' ')}`;
  }

  function guarded(
    cases: readonly Case[],
    all: readonly Variant[],
    lines: (cases: readonly Case[]) => string[],
  ): string[] {
    const variants = cases.map(([variant]) => variant);
    const text = condition(variants, all);
    return text === null ? lines(cases) : [`{{- if ${text} }}`, ...lines(cases), '{{- end }}'];
  }

  /** Returns the lines of a map or a list. */
  function value(cases: readonly Case[], indent: number): string[] {
    const [, first] = cases[0] ?? [];
    if (Array.isArray(first))
      return list(cases as readonly (readonly [Variant, readonly unknown[]])[], indent);
    return map(cases as readonly (readonly [Variant, object])[], indent);
  }

  function map(cases: readonly (readonly [Variant, object])[], indent: number): string[] {
    const variants = cases.map(([variant]) => variant);
    const keys = mergedOrder(cases.map(([, one]) => Object.keys(one)));
    const lines = keys.flatMap((key) =>
      guarded(
        cases.flatMap(([variant, one]): Case[] =>
          key in one ? [[variant, (one as Record<string, unknown>)[key]]] : [],
        ),
        variants,
        (some) => field(key, some, indent),
      ),
    );
    const further = furtherOf(cases[0]?.[1]);
    return further === undefined ? lines : [...lines, ...furtherLines(further, indent)];
  }

  function field(key: string, cases: readonly Case[], indent: number): string[] {
    const variants = cases.map(([variant]) => variant);
    const [, first] = cases[0] ?? [];
    const start = `${' '.repeat(indent)}${keyText(key)}:`;
    if (isExpression(first)) return expressionLines(start, first, indent);
    const note = noteOf(first);
    if (note !== undefined) {
      const lines = note.trimEnd().split('\n');
      return [
        `${start} |`,
        ...lines.map((line) => `${' '.repeat(indent + 2)}${line}`),
        ...value(cases, indent + 2),
      ];
    }
    const further = furtherOf(first);
    if (further !== undefined) {
      const nonEmpty = cases.filter(([, one]) => Object.keys(one as object).length > 0);
      const lines = [start, ...value(cases, indent + 2)];
      if (nonEmpty.length === cases.length) return lines;
      if (nonEmpty.length === 0) return [`{{- if ${further} }}`, ...lines, '{{- end }}'];
      const own = condition(
        nonEmpty.map(([variant]) => variant),
        variants,
      );
      return [`{{- if or (${own}) ${further} }}`, ...lines, '{{- end }}'];
    }
    if (isStructure(first) && !isEmpty(first)) return [start, ...value(cases, indent + 2)];
    return distinct(cases).flatMap((same) =>
      guarded(same, variants, (some) => [`${start} ${scalar(some[0]?.[1])}`]),
    );
  }

  function list(cases: readonly (readonly [Variant, readonly unknown[]])[], indent: number): string[] {
    const variants = cases.map(([variant]) => variant);
    const names = mergedOrder(cases.map(([, items]) => items.map(itemName)));
    return names.flatMap((name) =>
      guarded(
        cases.flatMap(([variant, items]): Case[] => {
          const item = items.find((one) => itemName(one) === name);
          return item === undefined ? [] : [[variant, item]];
        }),
        variants,
        (some) => {
          const [, first] = some[0] ?? [];
          if (!isStructure(first)) return [`${' '.repeat(indent)}- ${scalar(first)}`];
          const lines = value(some, indent + 2);
          return [`${' '.repeat(indent)}- ${(lines[0] ?? '').trimStart()}`, ...lines.slice(1)];
        },
      ),
    );
  }

  return { guarded, value };
}

function expressionLines(start: string, { [EXPRESSION]: text, form }: Expression, indent: number): string[] {
  switch (form) {
    case 'number':
      return [`${start} {{ int ${text} }}`];
    case 'text':
      return [`{{- with ${text} }}`, `${start} {{ . | quote }}`, '{{- end }}'];
    case 'json':
      return [`{{- with ${text} }}`, `${start} {{ toJson . }}`, '{{- end }}'];
    case 'yaml':
      return [`{{- with ${text} }}`, start, `{{- toYaml . | nindent ${indent + 2} }}`, '{{- end }}'];
  }
}

const furtherLines = (text: string, indent: number): string[] => [
  `{{- with ${text} }}`,
  `{{- toYaml . | nindent ${indent} }}`,
  '{{- end }}',
];

/** Returns the cases in groups of equal values. */
function distinct(cases: readonly Case[]): Case[][] {
  const groups: Case[][] = [];
  for (const one of cases) {
    const group = groups.find(([first]) => isDeepStrictEqual(first?.[1], one[1]));
    if (group) group.push(one);
    else groups.push([one]);
  }
  return groups;
}

/** Merges lists of names into one that keeps the order of each. */
function mergedOrder(lists: readonly (readonly string[])[]): string[] {
  const merged: string[] = [];
  for (const names of lists) {
    let at = 0;
    for (const name of names) {
      const known = merged.indexOf(name);
      if (known < 0) merged.splice(at++, 0, name);
      else at = known + 1;
    }
  }
  return merged;
}

const itemName = (item: unknown): string =>
  isStructure(item) && 'name' in item ? String(item.name) : JSON.stringify(item);

const isStructure = (value: unknown): value is object => typeof value === 'object' && value !== null;
const isEmpty = (value: object): boolean => Object.keys(value).length === 0;
const isExpression = (value: unknown): value is Expression => isStructure(value) && EXPRESSION in value;
const furtherOf = (value: unknown): string | undefined =>
  isStructure(value) ? (value as { readonly [FURTHER]?: string })[FURTHER] : undefined;
const noteOf = (value: unknown): string | undefined =>
  isStructure(value) ? (value as { readonly [NOTE]?: string })[NOTE] : undefined;

const keyText = (key: string): string => (/^[\w./-]+$/.test(key) ? key : JSON.stringify(key));

/** Returns a scalar in YAML: an expression alone is quoted when it is rendered, everything else in JSON's notation. */
function scalar(value: unknown): string {
  const whole = typeof value === 'string' ? /^\{\{ (.*) \}\}$/.exec(value)?.[1] : undefined;
  if (whole !== undefined && !whole.includes('{{')) return `{{ ${whole} | quote }}`;
  if (
    typeof value === 'string' &&
    /^[A-Za-z/][\w./-]*$/.test(value) &&
    !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value)
  )
    return value;
  return JSON.stringify(value);
}
