import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { difference, sameMessage } from './compare.ts';
import { type ApiAnswer, type Oracle, startOracle } from './oracle.ts';
import {
  definitions,
  estimates,
  FIELDS,
  type ObjectRow,
  object,
  objects,
  type Rule,
  type Schema,
} from './rule-cases.ts';
import { startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';

function definition(index: number, spec: Schema, rules: readonly Rule[] = []): unknown {
  const plural = `things${index}`;
  const own = rules.length > 0 ? { 'x-kubernetes-validations': rules } : {};
  const schema = object({ spec: { ...spec, ...own } });
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.example.com` },
    spec: {
      group: 'example.com',
      scope: 'Cluster',
      names: { plural, singular: `thing${index}`, kind: `Thing${index}`, listKind: `Thing${index}List` },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: schema } }],
    },
  };
}

/** Creates the definition and the object, and replaces its spec. Returns the answers. */
async function observe(server: Oracle, index: number, row: ObjectRow): Promise<ApiAnswer[]> {
  const made = await server.send('POST', DEFINITIONS, definition(index, row.schema, row.rules));
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const path = `/apis/example.com/v1/things${index}`;
  const answers: ApiAnswer[] = [];
  for (const spec of row.specs) {
    const body = { apiVersion: 'example.com/v1', kind: `Thing${index}`, metadata: { name: 'one' }, spec };
    const isFirst = answers.length === 0;
    for (;;) {
      const answer = isFirst
        ? await server.send('POST', path, body)
        : await server.send('PATCH', `${path}/one`, { spec }, 'application/merge-patch+json');
      // The definition is served a moment after its creation.
      if (answer.status !== 404) {
        answers.push(answer);
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  return answers;
}

/** Leaves out what upstream appends to the name of a type: the time. */
const withoutTime = ({ status, body }: ApiAnswer): ApiAnswer => ({
  status,
  body: JSON.parse(JSON.stringify(body).replace(/selfType\d+/g, 'selfType')),
});

function compare(upstream: ApiAnswer, ours: ApiAnswer): void {
  const [expected, actual] = [withoutTime(upstream), withoutTime(ours)];
  assert.equal(difference(expected, actual), null);
  if (expected.status >= 400 && !sameMessage(expected, actual)) {
    assert.deepEqual(actual.body, expected.body);
  }
}

test('rules are judged as by kube-apiserver', { skip }, async (t) => {
  const oracle = await startOracle(assets ?? '');
  t.after(() => oracle.stop());
  const ours = await startOurServer();
  t.after(() => ours.stop());
  const cases: [what: string, body: unknown][] = [
    ...definitions.map(([what, rule]): [string, unknown] => [what, definition(0, object(FIELDS), [rule])]),
    ...estimates.map(([what, spec]): [string, unknown] => [what, definition(0, spec)]),
  ];
  for (const [what, body] of cases) {
    await t.test(`a definition whose rule ${what}`, async () => {
      const path = `${DEFINITIONS}?dryRun=All`;
      const both = await Promise.all([oracle.send('POST', path, body), ours.send('POST', path, body)]);
      // The status of a new definition is not compared.
      const [expected, actual] = both.map((one) => (one.status === 201 ? { ...one, body: {} } : one));
      if (expected && actual) compare(expected, actual);
    });
  }
  const answers = await Promise.all(
    objects.map((row, index) => Promise.all([observe(oracle, index, row), observe(ours, index, row)])),
  );
  for (const [index, [expected, actual]] of answers.entries()) {
    await t.test(`an object: ${objects[index]?.what}`, () => {
      for (const [i, answer] of expected.entries()) compare(answer, actual[i] ?? { status: 0, body: null });
    });
  }
});
