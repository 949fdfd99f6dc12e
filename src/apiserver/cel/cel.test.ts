import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CostError, createMeter } from './cost-meter.ts';
import { createCompiler } from './program.ts';
import { escapedName, toCelValue } from './values.ts';

const compiler = createCompiler(['self', 'oldSelf']);
const NESTED = { list: [{ steps: [{ url: { host: 'x' } }, { url: {} }] }, { steps: [{}, {}] }] };
const rows: readonly [expression: string, self: unknown, result: unknown][] = [
  ['self.replicas <= self.max', { replicas: 2, max: 3 }, true],
  ['self.size() == 2 && self[0] == "a"', ['a', 'b'], true],
  ['self.all(k, self[k] > 0)', { a: 1, b: 2 }, true],
  ['has(self.a) || has(self.b)', { b: 1 }, true],
  ['has(self[0].a) && !has(self[0].b)', [{ a: 1 }], true],
  ['!has(self.list[0].path) || self.list[0].path.type != "x"', { list: [{ path: { type: 'y' } }] }, true],
  ['self.list.exists_one(f, has(f.steps[1].url) && has(f.steps[0].url.host))', NESTED, true],
  ['has(self.map(x, x)[0].a)', [{ a: 1 }], true],
  ['has(self["list"].a) || has(dyn({"b": 1}).b)', { list: {} }, true],
  ['has(self.a.b) ? has(self.a.b.c) : false', { a: {} }, false],
  ['self.?a.orValue("none")', {}, 'none'],
  ['self.exists_one(x, x == 1)', [1, 2], true],
  ['self.map(x, x * 2).sum()', [1, 2], 6n],
  ['[1, 2, 2].isSorted() && [3, 1].min() == 1', null, true],
  ['sets.contains(self, ["a"]) && !sets.intersects(self, ["x"])', ['a', 'b'], true],
  ["self.matches(r'^(?i)\\.?[a-z_]+$') && !self.matches('^[[:upper:]]')", 'fOO_', true],
  ["matches(self, r'^v1\\.[0-4](\\.|$)') && !matches(self, '^v2')", 'v1.4.0', true],
  ['!format.dns1123Label().validate(self).hasValue()', 'a-b', true],
  ['format.dns1035Label().validate(self).value().size()', '1-b', 1n],
  ['format.qualifiedName().validate(self).orValue([]).size() == 0', 'a.b/C_d', true],
  ['format.dns1123Label().validate(self) == null', 'a', false],
  ['self.find("[0-9]+")', 'ab12', '12'],
  ['"%s has %d".format([self, 2])', 'x', 'x has 2'],
  ['self.replace("a", "b").charAt(0)', 'aa', 'b'],
  [
    'isURL(self) && url(self).getHostname() == "example.com" && url(self).getPort() == "8080"',
    'http://example.com:8080/x',
    true,
  ],
  ['ip(self).family() == 4 && cidr("10.0.0.0/8").containsIP(self)', '10.1.2.3', true],
  ['isCIDR(self) && cidr(self) == cidr(self).masked()', '10.0.0.0/8', true],
  ['isCIDR(self) && cidr(self) == cidr(self).masked()', '10.0.0.1/8', false],
  ['isCIDR(self) && cidr(self) == cidr(self).masked()', 'fd00:0::/16', true],
  ['string(cidr(self)) + " " + string(cidr(self).masked())', '10.0.0.1/8', '10.0.0.1/8 10.0.0.0/8'],
  ['cidr(self).ip() == ip("10.0.0.1") && cidr(self).masked().ip() == ip("10.0.0.0")', '10.0.0.1/8', true],
  ['isCIDR("fd00::/64") && cidr("fd00::/48").containsCIDR("fd00::/64")', null, true],
  ['quantity(self).isLessThan(quantity("1Gi")) && quantity(self).asInteger() == 1024', '1Ki', true],
  ['quantity("1").add(quantity("500m")).compareTo(quantity("1500m")) == 0', null, true],
  ['quantity("1") == quantity("1000m") && ip("::1") != ip("::2") && cidr(self) == cidr(self)', '::/8', true],
  ['duration("90m").getHours() == 1', null, true],
  ['self.__namespace__ == "x" && self.a__dash__b == 1', { namespace: 'x', 'a-b': 1 }, true],
  ['type(self) == string', 'x', true],
];
for (const [expression, self, result] of rows) {
  test(expression, () => {
    assert.deepEqual(compiler.compile(expression).evaluate({ self: toCelValue(self, null) }), result);
  });
}

test('the schema determines dates, bytes and durations', () => {
  const self = toCelValue(
    { at: '2026-01-01T00:00:00Z', for: '1m' },
    {
      properties: { at: { format: 'date-time' }, for: { format: 'duration' } },
    },
  );
  const { evaluate } = compiler.compile('self.at + self.__for__ == timestamp("2026-01-01T00:01:00Z")');
  assert.equal(evaluate({ self }), true);
});

test('a property that is null is absent, a key of a map is not', () => {
  const schema = { properties: { a: {}, m: { additionalProperties: {} } } };
  const self = toCelValue({ a: null, m: { k: null } }, schema);
  const { evaluate } = compiler.compile('!has(self.a) && self.?a.orValue("d") == "d" && "k" in self.m');
  assert.equal(evaluate({ self }), true);
});

test('an expression with a syntax error is refused', () => {
  assert.throws(() => compiler.compile('self.a ==='), /Unexpected/);
});

test('has() of something other than a field is refused, and fails for what does not exist before the field', () => {
  for (const expression of ['has(self)', 'has(self[0])', 'has("a")', 'has(self.size())'])
    assert.throws(() => compiler.compile(expression), /has\(\) invalid argument/, expression);
  const { evaluate } = compiler.compile('has(self[1].a)');
  assert.throws(() => evaluate({ self: toCelValue([{ a: 1 }], null) }), /No such key|out of bounds|index/i);
});

test('an unknown function is refused before evaluation', () => {
  assert.throws(() => compiler.compile('"a".conjure()'), /conjure/);
});

const ints = Array.from({ length: 5000 }, () => 20n);
const text = 'a'.repeat(100);
const costs: readonly [expression: string, self: unknown, cost: number][] = [
  ['self.a.b == self.c', { a: { b: 1n }, c: 2n }, 6],
  ['has(self.a.b)', { a: { b: 1n } }, 2],
  ['self[self[0]] == 1', [0n, 1n], 4],
  ['[1, 2].size() == 2 && {"a": 1}.size() == 1', null, 4],
  ['[self].size() == 1', 1n, 13],
  ['self.all(x, x > 0)', [1n, 2n], 12],
  ['self.exists(x, x > 1)', [1n, 2n], 14],
  ['self.exists_one(x, x > 1)', [1n, 2n], 9],
  ['self.map(x, x + 1).size() == 2', [1n, 2n], 32],
  ['self.filter(x, x > 1).size() == 1', [1n, 2n], 21],
  ['self == self', text, 12],
  ['self.matches("^a+$")', text, 12],
  ['self.contains("b")', text, 11],
  ['self + self != ""', text, 22],
  ['3 in self', [1n, 2n], 3],
  ['sets.contains(self, [1, 2])', [1n, 2n], 6],
  ['isIP("10.0.0.1")', null, 1],
  ['self.startsWith("b")', text, 11],
  ['cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")', null, 6],
  ['cidr("fd00::/8").containsIP("fd00::1")', null, 3],
  ['duration("1h") > duration("1m") && string(self) != ""', text, 3],
];
for (const [expression, self, cost] of costs) {
  test(`${expression} costs ${cost}`, () => {
    const meter = createMeter();
    try {
      compiler.compile(expression).evaluate({ self }, meter);
    } finally {
      assert.equal(meter.spent, cost);
    }
  });
}

for (const expression of [
  'self.all(x, self.all(y, x == y))',
  'self.exists(x, self.exists(y, x != y)) || self.all(x, x == 20)',
  'self.exists_one(x, self.filter(y, x == y).size() == 0)',
  'self.all(x, sets.equivalent(self, self))',
  'self.all(x, (self + self + self + self).size() > 0)',
]) {
  test(`${expression} ends at the limit of a call`, () => {
    assert.throws(() => compiler.compile(expression).evaluate({ self: ints }), CostError);
  });
}

test('an evaluation that takes too much processor time ends, whatever it costs', () => {
  let used = 0;
  const meter = createMeter(undefined, () => {
    used += 1000;
    return used;
  });
  const program = compiler.compile('self.all(x, x == 20)');
  assert.throws(() => program.evaluate({ self: ints.slice(0, 100) }, meter), CostError);
  assert.equal(program.evaluate({ self: ints.slice(0, 100) }), true);
});

test('reserved words and symbols have escaped names', () => {
  assert.deepEqual(['if', 'a.b', 'a/b', 'a__b', 'plain'].map(escapedName), [
    '__if__',
    'a__dot__b',
    'a__slash__b',
    'a__underscores__b',
    'plain',
  ]);
});
