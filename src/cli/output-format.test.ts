import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { commandsWithSchemas } from './command-output-schema.ts';
import { COMMANDS } from './commands.ts';
import { OUTPUT_VERSION, renderFact, renderFacts } from './output-format.ts';

const FACTS = { name: 'web', ports: [80] };

describe('facts', () => {
  const rows = [
    [
      '-o json',
      'json',
      '{\n  "apiVersion": "cli.fairlead.dev/v1alpha1",\n  "name": "web",\n  "ports": [\n    80\n  ]\n}\n',
    ],
    ['-o yaml', 'yaml', 'apiVersion: cli.fairlead.dev/v1alpha1\nname: web\nports:\n  - 80\n'],
    ['neither: the text of the command', 'text', null],
  ] as const;
  for (const [what, output, rendered] of rows) {
    test(what, () => assert.equal(renderFacts(FACTS, { output }), rendered));
  }
});

test('each object of a list has the version', () => {
  assert.deepEqual(JSON.parse(renderFacts([FACTS], { output: 'json' }) ?? ''), [
    { apiVersion: OUTPUT_VERSION, ...FACTS },
  ]);
});

describe('facts as they happen', () => {
  const all = (output: 'json' | 'yaml') =>
    [FACTS, { name: 'db', ports: [] }].map((fact) => renderFact(fact, { output })).join('');
  test('-o json: one object per line', () => {
    assert.equal(
      all('json'),
      '{"apiVersion":"cli.fairlead.dev/v1alpha1","name":"web","ports":[80]}\n{"apiVersion":"cli.fairlead.dev/v1alpha1","name":"db","ports":[]}\n',
    );
  });
  test('-o yaml: one document each', () => {
    assert.deepEqual(
      parseAllDocuments(all('yaml')).map((one) => one.toJS() as unknown),
      [FACTS, { name: 'db', ports: [] }].map((one) => ({ apiVersion: OUTPUT_VERSION, ...one })),
    );
  });
  test('neither: the text of the command', () => assert.equal(renderFact(FACTS, { output: 'text' }), null));
});

/** Commands that act, run a program or a server, or print a file. */
const WITHOUT_FACTS = [
  ...['stop', 'down', 'snapshot', 'restore', 'kubeconfig', 'exec', 'logs', 'open'],
  ...['agent', 'address-controller', 'dns-server', 'manifests', 'echo', 'completion', 'ui', 'run'],
];
const SCHEMATA = new Set(commandsWithSchemas());
for (const { name, internal, load } of COMMANDS) {
  if (internal) continue;
  const takes = !WITHOUT_FACTS.includes(name);
  test(`${name} ${takes ? 'prints facts as text, JSON or YAML' : 'prints no facts'}`, async () => {
    const { command } = await load();
    const option = command.syntax.options['output'];
    assert.deepEqual(
      option?.kind === 'choice' ? [option.short, ...option.choices] : null,
      takes ? ['o', 'text', 'json', 'yaml'] : null,
    );
    assert.equal(SCHEMATA.has(name), takes, 'docs/schema/command-output.json');
  });
}
