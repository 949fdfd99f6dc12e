import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, test } from 'node:test';
import { configurationWords } from './cluster-configuration.ts';
import { choice, flag, text, wholeNumber } from './options.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-config-'));
after(() => rmSync(folder, { recursive: true }));

const OPTIONS = {
  nodes: wholeNumber('N', [1, 1, 9], ''),
  'ip-family': choice('F', ['ipv4', 'dual'], 'ipv4', ''),
  'pod-cidr': text('C', ''),
  'masquerade-all': flag(''),
  'lb-pool': text('C', ''),
  detach: flag(''),
};
const HEAD = 'apiVersion: fairlead.dev/v1alpha1\nkind: Cluster\n';

function words(content: string): string[] {
  const file = join(folder, 'fairlead.yaml');
  writeFileSync(file, content);
  const fields = ['nodes', 'ip-family', 'pod-cidr', 'masquerade-all', 'lb-pool'];
  return configurationWords(file, OPTIONS, fields, ['lb-pool']);
}

test('fields become options, and manifests are relative to the file', () => {
  assert.deepEqual(
    words(
      `${HEAD}nodes: 3\nipFamily: dual\npodCidr: [10.1.0.0/16, "fd00::/56"]\nmasqueradeAll: true\nmanifests: [a.yaml]\n`,
    ),
    [
      '--nodes=3',
      '--ip-family=dual',
      '--pod-cidr=10.1.0.0/16,fd00::/56',
      '--masquerade-all',
      `--file=${join(folder, 'a.yaml')}`,
    ],
  );
  assert.deepEqual(words(`${HEAD}masqueradeAll: false\n`), []);
  assert.deepEqual(words(`${HEAD}lbPool: [192.0.2.0/28]\n`), ['--lb-pool=192.0.2.0/28']);
  assert.deepEqual(words(`${HEAD}lbPool: {vip: {addresses: [192.0.2.7], autoAssign: false}}\n`), [
    '--lb-pool={"vip":{"addresses":["192.0.2.7"],"autoAssign":false}}',
  ]);
});

const WRONG: readonly [what: string, content: string, message: RegExp][] = [
  ['a misspelt field', `${HEAD}ipFamilly: dual\n`, /unknown field ipFamilly: did you mean ipFamily\?/],
  ['an option that is not a property of the cluster', `${HEAD}detach: true\n`, /unknown field detach/],
  [
    'another kind',
    'apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\n',
    /must begin with apiVersion: fairlead/,
  ],
  ['a boolean with a string', `${HEAD}masqueradeAll: often\n`, /masqueradeAll must be true or false/],
  ['an object', `${HEAD}nodes: {role: worker}\n`, /nodes must be a string, a number or a list/],
  ['a string', 'hello', /is not an object/],
];
for (const [what, content, message] of WRONG)
  test(`${what} is refused`, () => assert.throws(() => words(content), message));

test('a missing file is refused', () => {
  assert.throws(
    () => configurationWords('/nonexistent.yaml', OPTIONS, []),
    /nonexistent.yaml: cannot be read: no such file/,
  );
});

test('the example is accepted by up', async () => {
  const { command } = await import('./up.ts');
  const example = resolve(import.meta.dirname, '..', '..', 'examples', 'fairlead.yaml');
  const output = {
    out() {},
    err() {},
    raw: () => {},
    interactive: false,
    columns: null,
    unread: new AbortController().signal,
  };
  // An invalid option after the file was read: no process is started.
  await assert.rejects(
    command.run(['--config', example, '--name', 'Not A Name'], output),
    /invalid cluster name/,
  );
});
