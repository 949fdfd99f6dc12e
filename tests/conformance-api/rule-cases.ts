export type Schema = Readonly<Record<string, unknown>>;
export type Rule = Readonly<Record<string, unknown>>;

const text = { type: 'string', maxLength: 10 };
const number = { type: 'integer' };
export const object = (properties: Schema, more: Schema = {}) => ({ type: 'object', properties, ...more });
const list = (items: Schema, maxItems = 5) => ({ type: 'array', maxItems, items });

/** The schema that the rules of `definitions` are about. */
export const FIELDS = {
  count: number,
  ratio: { type: 'number' },
  name: text,
  on: { type: 'boolean' },
  names: list(text),
  parts: list(object({ a: text })),
  sizes: { type: 'object', maxProperties: 5, additionalProperties: number },
  port: { 'x-kubernetes-int-or-string': true },
  at: { ...text, format: 'date-time' },
  every: { type: 'string', format: 'duration' },
  any: { 'x-kubernetes-preserve-unknown-fields': true },
  resource: {
    ...object({}),
    'x-kubernetes-embedded-resource': true,
    'x-kubernetes-preserve-unknown-fields': true,
  },
  'x-y': text,
};

export const definitions: readonly [what: string, rule: Rule][] = [
  ['reads a field that does not exist', { rule: 'self.z == 100' }],
  ['reads two fields that do not exist', { rule: 'self.z == 100 && has(self.y)' }],
  ['reads a field of an item that does not exist', { rule: 'self.parts.all(p, p.a == "" || p.b == "")' }],
  ['reads a field that is preserved without a schema', { rule: 'has(self.any)' }],
  ['reads a field of a text', { rule: 'self.name.first == "a"' }],
  ['reads the name of an embedded resource', { rule: 'self.resource.metadata.name == self.resource.kind' }],
  ['reads the labels of an embedded resource', { rule: 'has(self.resource.metadata.labels)' }],
  ['reads a field with a dash', { rule: 'self.x__dash__y == "a"' }],
  ['compares a list with a number', { rule: 'self.names == 3' }],
  ['compares an object with a number', { rule: 'self == 3' }],
  ['compares items of another type', { rule: 'self.names.exists(n, n == 1)' }],
  ['compares a fraction with a whole number', { rule: 'self.ratio == 1' }],
  ['orders a fraction and a whole number', { rule: 'self.ratio > 1' }],
  ['compares a number with null', { rule: 'self.count == null' }],
  ['compares a port with a number and a text', { rule: 'self.port == 80 || self.port == "http"' }],
  ['compares times', { rule: 'self.at > timestamp("2020-01-01T00:00:00Z") && self.every < duration("1h")' }],
  ['compares a time with a text', { rule: 'self.at == "2020-01-01"' }],
  ['adds a number to a text', { rule: 'self.name + 1 == "a"' }],
  ['indexes a map by a number', { rule: 'self.sizes[1] == 1' }],
  ['loops over a number', { rule: 'self.count.all(c, c)' }],
  ['has a loop whose condition is a text', { rule: 'self.names.all(n, n)' }],
  ['has a filter whose condition is a number', { rule: 'self.names.filter(n, 1) == self.names' }],
  ['mixes types in a list', { rule: '[1, "a"].size() == self.count' }],
  ['calls a function with another type', { rule: 'self.name.startsWith(1)' }],
  ['calls a function that does not exist', { rule: 'conjure(self.name)' }],
  ['names a variable that does not exist', { rule: 'other.name == "a"' }],
  ['gives a text', { rule: 'self.name' }],
  ['gives a default of another type', { rule: 'self.?name.orValue(1) == "a"' }],
  ['is empty', { rule: ' ' }],
  ['has line breaks and no message', { rule: 'self.z\n == 1' }],
  ['has several lines', { rule: 'self.count > 1 &&\n  self.z == 1', message: 'm' }],
  ['has a message that reads a missing field', { rule: 'self.on', messageExpression: 'self.z' }],
  ['has a message that gives a number', { rule: 'self.on', messageExpression: 'self.count' }],
  ['has an unknown reason', { rule: 'self.on', reason: 'Because' }],
  ['is about a field that does not exist', { rule: 'self.on', fieldPath: '.off' }],
  ['takes an optional old value without reading it', { rule: 'self.on', optionalOldSelf: true }],
  ['takes the optional old value as given', { rule: 'oldSelf.count == 1', optionalOldSelf: true }],
];

const withRules = (schema: Schema, ...rules: readonly string[]) => ({
  ...schema,
  'x-kubernetes-validations': rules.map((rule) => ({ rule })),
});
const unlimited = (items: Schema) => ({ type: 'array', items });
const squares = (count: number) =>
  Array.from({ length: count }, (_, i) => `self.l.all(x, self.l.all(y, y > ${i}))`);

/** Schemas whose rules cost much by their estimates, or have no old value. */
export const estimates: readonly [what: string, spec: Schema][] = [
  [
    'loops over texts of unlimited lists in a list',
    object({ x: unlimited(withRules(unlimited({ type: 'string' }), "self.all(s, s == 'string constant')")) }),
  ],
  ['loops over a limited list', withRules(object({ l: list(text, 500) }), 'self.l.all(x, x == "a")')],
  ['loops twice over a limited list', withRules(object({ l: list(number, 2000) }), ...squares(1))],
  ['loops over an unlimited list', withRules(unlimited(number), 'self.all(x, x > 1 && x > 2)')],
  [
    'is about each item of an unlimited list',
    unlimited(withRules(number, 'self > 1 && self > 2 && self > 3')),
  ],
  [
    'is about each item of an unlimited list of objects with required fields',
    unlimited(
      withRules(object({ abc: number, def: text }, { required: ['abc', 'def'] }), 'self.def == "abcdef"'),
    ),
  ],
  [
    'is about each value of an unlimited map',
    {
      type: 'object',
      additionalProperties: withRules({ type: 'string' }, `self.startsWith("${'a'.repeat(90)}")`),
    },
  ],
  ['matches an unlimited text', withRules({ type: 'string' }, 'self.matches("^[a-z]+(-[a-z]+)*$")')],
  [
    'compares an item of a list without keys with an old one',
    object({ l: list(object({ a: withRules(number, 'self == oldSelf') })) }),
  ],
  [
    'compares a member of an atomic map with an old one',
    object({ o: object({ a: withRules(number, 'self == oldSelf') }, { 'x-kubernetes-map-type': 'atomic' }) }),
  ],
  [
    'compares an atomic list with the old one',
    object({ l: withRules({ ...list(number), 'x-kubernetes-list-type': 'atomic' }, 'self == oldSelf') }),
  ],
  ['costs little, but as one of twelve', withRules(object({ l: list(number, 1400) }), ...squares(12))],
];

export interface ObjectRow {
  readonly what: string;
  readonly schema: Schema;
  readonly rules: readonly Rule[];
  /** The value of spec that is created, and those that replace it. */
  readonly specs: readonly unknown[];
}

const twenties = (count: number) => Array(count).fill(20);
const largeList = {
  schema: object({ l: list(number, 725) }),
  rules: [{ rule: 'self.l.all(x, self.l.all(y, y == x))' }],
};
/** A comparison of long texts costs 2,000, and little time. */
const costlyItem = object({ s: { type: 'string', maxLength: 20_000 }, n: list(number, 100) });
const costlyRules = (count: number) =>
  Array.from({ length: count }, (_, i) => `self.n.all(x, x != ${i} && self.s == self.s)`);
const counted = object({ n: number, m: number });
export const objects: readonly ObjectRow[] = [
  { what: 'a loop in a loop over 725 items', ...largeList, specs: [{ l: twenties(725) }] },
  { what: 'a loop in a loop within the limit', ...largeList, specs: [{ l: twenties(400) }] },
  { what: 'a loop in a loop beyond the limit', ...largeList, specs: [{ l: twenties(415) }] },
  {
    what: 'a rule beyond the limit with a message, and one after it',
    schema: object({ l: list(number, 725) }),
    rules: [
      { rule: 'self.l.all(x, self.l.exists(y, y != x)) || true', message: 'unused' },
      { rule: 'self.l.all(x, self.l.exists(y, y == x + 1 - 1 && y != 20) || true)', message: 'too long' },
      { rule: 'self.l.size() == 0', message: 'never seen' },
    ],
    specs: [{ l: twenties(725) }],
  },
  {
    what: 'rules of items that use up the budget of the object',
    schema: object({ l: list(withRules(costlyItem, ...costlyRules(5)), 12) }),
    rules: [],
    specs: [{ l: Array(12).fill({ s: 'a'.repeat(20_000), n: twenties(100) }) }],
  },
  {
    what: 'rules of items that nearly use up the budget of the object',
    schema: object({ l: list(withRules(costlyItem, ...costlyRules(4)), 12) }),
    rules: [],
    specs: [{ l: Array(12).fill({ s: 'a'.repeat(20_000), n: twenties(100) }) }],
  },
  {
    what: 'rules about properties, keys and items that are null',
    schema: object({
      a: { ...text, nullable: true },
      m: { type: 'object', maxProperties: 3, additionalProperties: { ...text, nullable: true } },
      l: list({ ...text, nullable: true }),
    }),
    rules: [
      { rule: '!has(self.a)' },
      { rule: 'self.?a.hasValue()' },
      { rule: 'self.a == "x"' },
      { rule: '"k" in self.m && has(self.m.k)' },
      { rule: 'size(self.m) == 1 && size(self.l) == 1' },
    ],
    specs: [{ a: null, m: { k: null }, l: [null] }],
  },
  {
    what: 'a conversion of a text that is not a number',
    schema: object({ t: text }),
    rules: [{ rule: 'int(self.t) > 0' }],
    specs: [{ t: '12' }, { t: 'x' }],
  },
  { what: 'a violated rule', schema: counted, rules: [{ rule: 'self.n < self.m' }], specs: [{ n: 2, m: 1 }] },
  {
    what: 'a violated rule with reason, path and message',
    schema: counted,
    rules: [
      { rule: 'self.n < 0', reason: 'FieldValueForbidden', fieldPath: '.n', message: 'no' },
      { rule: 'self.n < 0', reason: 'FieldValueRequired', message: ' no ' },
      { rule: 'self.n < 0', reason: 'FieldValueDuplicate', fieldPath: '.m' },
    ],
    specs: [{ n: 2, m: 1 }],
  },
  {
    what: 'a violated rule with an evaluated message',
    schema: counted,
    rules: [
      { rule: 'self.n < 0', messageExpression: 'self.n == 2 ? "n is two" : "n is another"' },
      { rule: 'self.n < 1', messageExpression: '"a\\nb"', message: 'fixed' },
    ],
    specs: [{ n: 2 }],
  },
  {
    what: 'a rule that reads an absent field, an absent key and an absent item',
    schema: object({
      n: number,
      s: { type: 'object', maxProperties: 3, additionalProperties: number },
      l: list(number),
    }),
    rules: [
      { rule: 'self.n > 0' },
      { rule: 'self.s["a"] > 0' },
      { rule: 'self.l[2] > 0' },
      { rule: '1 / self.l[0] > 0' },
    ],
    specs: [{ s: {}, l: [0] }],
  },
  {
    what: 'a violated rule of a value in a map',
    schema: object({
      s: {
        type: 'object',
        additionalProperties: { ...number, 'x-kubernetes-validations': [{ rule: 'self > 0' }] },
      },
    }),
    rules: [],
    specs: [{ s: { 'a.b': 0 } }],
  },
  {
    what: 'a transition',
    schema: counted,
    rules: [{ rule: 'self.n >= oldSelf.n' }],
    specs: [{ n: 2 }, { n: 3 }, { n: 1 }],
  },
  {
    what: 'a transition from an optional value',
    schema: counted,
    rules: [{ rule: 'oldSelf.hasValue() ? self.n > oldSelf.value().n : self.n == 0', optionalOldSelf: true }],
    specs: [{ n: 0 }, { n: 1 }, { n: 0 }],
  },
  {
    what: 'a transition of items by their keys',
    schema: object({
      l: {
        ...list(
          object(
            { k: text, n: { ...number, 'x-kubernetes-validations': [{ rule: 'self == oldSelf' }] } },
            { required: ['k'] },
          ),
        ),
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['k'],
      },
    }),
    rules: [],
    specs: [
      { l: [{ k: 'a', n: 1 }] },
      {
        l: [
          { k: 'b', n: 2 },
          { k: 'a', n: 1 },
        ],
      },
      { l: [{ k: 'a', n: 2 }] },
    ],
  },
];
