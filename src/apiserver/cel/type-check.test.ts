import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCompiler } from './program.ts';
import { schemaSize } from './schema-size.ts';
import { schemaType } from './schema-type.ts';
import { optionalOf } from './types.ts';

const compiler = createCompiler(['self', 'oldSelf']);
const self = schemaType(
  {
    type: 'object',
    properties: {
      n: { type: 'integer' },
      d: { type: 'number' },
      s: { type: 'string' },
      'if-so': { type: 'string' },
      list: { type: 'array', items: { type: 'object', properties: { a: { type: 'string' } } } },
      map: { type: 'object', additionalProperties: { type: 'integer' } },
      port: { 'x-kubernetes-int-or-string': true },
      unknown: { 'x-kubernetes-preserve-unknown-fields': true } as object,
      bytes: { type: 'string', format: 'byte' },
      pod: { type: 'object', 'x-kubernetes-embedded-resource': true },
    },
  },
  true,
);
assert.ok(self);
const types = new Map([
  ['self', self],
  ['oldSelf', optionalOf(self)],
]);

const accepted: readonly string[] = [
  'self.metadata.name.startsWith("a") && self.kind == self.pod.kind',
  'self.if__dash__so == "a" || self.port == 1 || self.port == "a"',
  'self.list.all(x, has(x.a) && x.a != "")',
  'self.list.exists_one(x, x.a == "b") && self.map.all(k, self.map[k] > self.d)',
  'self.list.map(x, x.a).join(",") == "a" && self.list.map(x, x.a == "", 1).sum() > 0',
  'self.list.filter(x, x.a in ["b", "c"]).size() + self.map.size() == size(self.s)',
  'self.?list[0].a.orValue("a") == "a" && self.?s.hasValue()',
  'oldSelf.hasValue() && oldSelf.value().n > 1 && oldSelf.s.orValue("") == ""',
  'optional.of(1).orValue(2) == 1 && optional.none().orValue(2) == 2',
  'sets.contains([1], [self.n]) && [] == self.list && {} == self.map',
  'type(self.port) == int ? self.port < 5 : self.port.endsWith("%")',
  'quantity("1").add(quantity("2")).isGreaterThan(quantity(self.s)) && ip("::1").family() == 6',
  'cidr(self.s).containsIP("10.0.0.1") && url(self.s).getHost() == "a"',
  'timestamp(self.s) + duration("1h") > timestamp("2020-01-01T00:00:00Z")',
  '(self.n > 1 ? dyn(self.n) : dyn(self.s)) == "a" && -self.n < 0 && self.n % 2 == 0',
  'self.bytes == b"a" && string(self.bytes) == "a" && self.pod != null',
  '"%s".format([self.n]) == "1" && self.list == self.list',
];
for (const expression of accepted) {
  test(`${expression} fits its types`, () => {
    assert.equal(compiler.compile(expression, types).type, 'bool');
  });
}

const refused: readonly [expression: string, problem: RegExp][] = [
  ['self.z == 1', /^ERROR: <input>:1:5: undefined field 'z'\n \| self\.z == 1\n \| \.\.\.\.\^$/],
  ['self.unknown == 1', /undefined field 'unknown'/],
  [
    'true && // comment\n self.n == "a"',
    /<input>:2:9: found no matching overload for '_==_' applied to '\(int, string\)'/,
  ],
  ['self.list[0].b == ""', /1:13: undefined field 'b'/],
  ['self["n"] == 1', /1:5: found no matching overload for '_\[_\]' applied to '\(selfType1, string\)'/],
  ['self.n.size() == 1', /1:12: found no matching overload for 'size' applied to 'int\.\(\)'/],
  ['nothing', /1:1: undeclared reference to 'nothing' \(in container ''\)/],
  ['self.s.conjure()', /1:15: undeclared reference to 'conjure'/],
  ['self.n && true', /1:5: expected type 'bool' but found 'int'/],
  ['self.n.all(x, true)', /expression of type 'int' cannot be range of a comprehension/],
  ['self.n ===', /1:10: Syntax error: /],
];
for (const [expression, problem] of refused) {
  test(`${JSON.stringify(expression)} does not fit its types`, () => {
    assert.throws(
      () => compiler.compile(expression, types),
      (error: Error) => problem.test(error.message),
    );
  });
}

const limited = {
  type: 'object',
  properties: {
    n: { type: 'integer' },
    s: { type: 'string', maxLength: 25 },
    u: { type: 'string' },
    list: { type: 'array', maxItems: 10, items: { type: 'string', maxLength: 5 } },
    map: { type: 'object', maxProperties: 10, additionalProperties: { type: 'integer' } },
  },
};
const limits = new Map([['self', schemaType(limited, false) ?? self]]);
const size = schemaSize(limited, false);
assert.ok(size);
const estimates: readonly [expression: string, cost: number][] = [
  ['self.n == 1', 2],
  ['has(self.s)', 1],
  ['self.s == self.s', 14],
  ['self.s == "abc"', 3],
  ['self.u == self.s + "a"', 26],
  ['self.s.startsWith("abc") && self.s.contains("a")', 15],
  ['self.s.matches("^a+$")', 13],
  ['self.s.replace("a", "bb") == self.u', 44],
  ['self.list.all(x, x == "a")', 53],
  ['self.list.exists(x, x == "a") || self.map.exists_one(k, k == "a")', 97],
  ['self.list.map(x, x.size()).sum() > 1', 164],
  ['self.list.filter(x, x != "").size() > 1', 155],
  ['self.n in [1, 2] ? self.list[0] == "a" : self.list.size() == 1', 18],
  ['isQuantity(self.s) && quantity(self.s) == quantity("1")', 26],
];
for (const [expression, cost] of estimates) {
  test(`${expression} is estimated to cost at most ${cost}`, () => {
    assert.equal(compiler.compile(expression, limits).maxCost(size), cost);
  });
}
