import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { applyManifests, readManifests } from '../src/cluster/manifests.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-manifests-'));
let plane: ControlPlane;
before(async () => {
  plane = await startControlPlane();
});
after(async () => {
  await plane.close();
  rmSync(folder, { recursive: true, force: true });
});

const object = (kind: string, apiVersion: string, name: string, rest = '') =>
  `kind: ${kind}\napiVersion: ${apiVersion}\nmetadata: {name: ${name}}\n${rest}`;
const map = (name: string) => object('ConfigMap', 'v1', name, 'data: {a: b}\n');

/** Defines a kind in `kitchen.example.com/v1`. */
const definition = (kind: string, plural: string) =>
  object(
    'CustomResourceDefinition',
    'apiextensions.k8s.io/v1',
    `${plural}.kitchen.example.com`,
    `spec:
  group: kitchen.example.com
  names: {kind: ${kind}, plural: ${plural}}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`,
  );

const rows: {
  readonly what: string;
  readonly documents: readonly string[];
  readonly applied: readonly string[];
  /** The message and the fix of each problem. */
  readonly problems?: readonly (readonly [message: RegExp, fix: RegExp])[];
}[] = [
  {
    what: 'a misspelt kind is reported with its document, and the others are applied',
    documents: [map('a'), object('ConfgMap', 'v1', 'b'), map('c')],
    applied: ['a', 'c'],
    problems: [[/m\.yaml: document 2: ConfgMap b: unknown kind ConfgMap in v1$/, /^use kind: ConfigMap$/]],
  },
  {
    what: 'a kind with the apiVersion of another group',
    documents: [object('Deployment', 'extensions/v1beta1', 'a'), map('b')],
    applied: ['b'],
    problems: [
      [/document 1: .*unknown kind Deployment in extensions\/v1beta1$/, /^use apiVersion: apps\/v1$/],
    ],
  },
  {
    what: 'a kind without a CustomResourceDefinition',
    documents: [object('Spoon', 'drawer.example.com/v1', 'a'), map('b')],
    applied: ['b'],
    problems: [
      [
        /document 1: .*unknown kind Spoon in drawer\.example\.com\/v1$/,
        /^add the CustomResourceDefinition that defines Spoon in drawer\.example\.com\/v1 to the manifests/,
      ],
    ],
  },
  {
    what: 'an object before its CustomResourceDefinition',
    documents: [object('Pot', 'kitchen.example.com/v1', 'pot'), map('b'), definition('Pot', 'pots')],
    applied: ['b', 'pots.kitchen.example.com', 'pot'],
  },
  {
    what: 'an object directly after its CustomResourceDefinition',
    documents: [definition('Pan', 'pans'), object('Pan', 'kitchen.example.com/v1', 'pan')],
    applied: ['pans.kitchen.example.com', 'pan'],
  },
  {
    what: 'another version than its CustomResourceDefinition serves',
    documents: [definition('Cup', 'cups'), object('Cup', 'kitchen.example.com/v2', 'cup'), map('b')],
    applied: ['cups.kitchen.example.com', 'b'],
    problems: [[/document 2: .*unknown kind Cup/, /^use apiVersion: kitchen\.example\.com\/v1$/]],
  },
  {
    what: 'an object before its namespace',
    documents: [
      'kind: ConfigMap\napiVersion: v1\nmetadata: {name: inside, namespace: late}\n',
      object('Namespace', 'v1', 'late'),
    ],
    applied: ['late', 'inside'],
  },
  {
    what: 'an object that the server refuses',
    documents: [object('Service', 'v1', 'web', 'spec: {ports: [{port: 80, nodeport: 30080}]}\n'), map('b')],
    applied: ['b'],
    problems: [[/document 1: Service web: .*nodeport.*not declared in schema/s, /^correct the manifest/]],
  },
];
for (const { what, documents, applied, problems = [] } of rows) {
  test(what, async () => {
    const file = join(folder, 'm.yaml');
    writeFileSync(file, documents.join('---\n'));
    const { objects } = await readManifests([file]);
    const result = await applyManifests(plane.client, objects, AbortSignal.timeout(60_000));
    assert.deepEqual(
      result.applied.map(({ name }) => name),
      applied,
    );
    assert.equal(result.problems.length, problems.length, result.problems.map(String).join('\n'));
    for (const [i, [message, fix]] of problems.entries()) {
      assert.match(result.problems[i]?.message ?? '', message);
      assert.match(result.problems[i]?.hint ?? '', fix);
    }
  });
}
