import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { openRemote, selectRemoteNodes } from './remote-option.ts';

const folder = mkdtempSync(join(tmpdir(), 'remote-option-'));
const state = process.env['FAIRLEAD_STATE'];
before(() => {
  process.env['FAIRLEAD_STATE'] = join(folder, 'state');
});
after(() => {
  if (state === undefined) delete process.env['FAIRLEAD_STATE'];
  else process.env['FAIRLEAD_STATE'] = state;
  rmSync(folder, { recursive: true });
});

const options = { name: 'default', kubeconfig: null, context: null, 'agent-namespace': null };
const absent = join(folder, 'absent');

const kubeconfig = (context: string): string => {
  const file = join(folder, `${context}.yaml`);
  const cluster = { server: 'https://127.0.0.1:1', 'insecure-skip-tls-verify': true };
  writeFileSync(
    file,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': context,
      contexts: [{ name: context, context: { cluster: 'c', user: 'u' } }],
      clusters: [{ name: 'c', cluster }],
      users: [{ name: 'u', user: { token: 't' } }],
    }),
  );
  return file;
};

describe('the cluster of a command', () => {
  const rows: readonly {
    readonly name: string;
    readonly options?: Partial<typeof options> | Readonly<Record<string, string>>;
    readonly given?: readonly string[];
    readonly environment?: Readonly<Record<string, string>>;
    readonly refused: RegExp | null;
  }[] = [
    { name: '--name: a local one', given: ['name'], refused: null },
    { name: 'FAIRLEAD_CLUSTER: a local one', environment: { FAIRLEAD_CLUSTER: 'default' }, refused: null },
    {
      name: '--name and --kubeconfig: refused',
      options: { kubeconfig: absent },
      given: ['name', 'kubeconfig'],
      refused: /use one of --name and --kubeconfig/,
    },
    {
      name: '--name and --agent-namespace: refused',
      options: { 'agent-namespace': 'net' },
      given: ['name', 'agent-namespace'],
      refused: /--agent-namespace is for clusters whose agents run in pods/,
    },
    { name: '--kubeconfig: that file', options: { kubeconfig: absent }, refused: /absent/ },
    { name: '--context: in the usual files', options: { context: 'prod' }, refused: /no such context: prod/ },
    { name: 'none of both: says how to have one', refused: /there is no local cluster, and no kubeconfig/ },
  ];
  for (const row of rows) {
    test(row.name, async () => {
      const opened = openRemote(
        'status',
        { options: { ...options, ...row.options } as typeof options, given: new Set(row.given) },
        { HOME: absent, ...row.environment },
      );
      if (row.refused === null) assert.equal(await opened, null);
      else await assert.rejects(opened, row.refused);
    });
  }
});

test('--node names a node with an agent', () => {
  const agents = ['n1', 'n2'].map((node) => ({ node, namespace: 'net', pod: 'p', port: 1 }));
  assert.deepEqual(selectRemoteNodes('mode', null, { agents }), ['n1', 'n2']);
  assert.deepEqual(selectRemoteNodes('mode', 'n2', { agents }), ['n2']);
  assert.throws(() => selectRemoteNodes('mode', 'n3', { agents }), { hint: 'use one of n1, n2' });
});

describe('the cluster of a command on a machine with a local cluster', () => {
  before(() => {
    mkdirSync(join(folder, 'state', 'default'), { recursive: true });
    writeFileSync(join(folder, 'state', 'default', 'cluster.json'), '{}');
  });
  const rows: readonly {
    readonly name: string;
    readonly environment: () => Readonly<Record<string, string>>;
    readonly given?: readonly string[];
    readonly refused: RegExp | null;
    readonly hint?: RegExp;
  }[] = [
    { name: 'nothing is named: the local one', environment: () => ({}), refused: null },
    {
      name: 'KUBECONFIG: that one, and the error names it',
      environment: () => ({ KUBECONFIG: kubeconfig('prod') }),
      refused: /^FairleadError: the cluster of context prod \(.*prod\.yaml\): .*127\.0\.0\.1:1/,
      hint: /for a local cluster, use --name NAME/,
    },
    {
      name: 'KUBECONFIG and --name: the local one',
      environment: () => ({ KUBECONFIG: kubeconfig('prod') }),
      given: ['name'],
      refused: null,
    },
    {
      name: 'KUBECONFIG and FAIRLEAD_CLUSTER: the local one',
      environment: () => ({ KUBECONFIG: kubeconfig('prod'), FAIRLEAD_CLUSTER: 'default' }),
      refused: null,
    },
    {
      name: 'KUBECONFIG of the local one: the local one',
      environment: () => ({ KUBECONFIG: kubeconfig('fairlead-default') }),
      refused: null,
    },
    {
      name: 'KUBECONFIG of another local one: refused, not guessed',
      environment: () => ({ KUBECONFIG: kubeconfig('fairlead-test') }),
      refused: /the context of KUBECONFIG is the local cluster test, not default/,
      hint: /--name test, --name default, or --context fairlead-test/,
    },
    {
      name: 'KUBECONFIG names no file that exists: the local one',
      environment: () => ({ KUBECONFIG: absent }),
      refused: null,
    },
  ];
  for (const { name, environment, given, refused, hint } of rows) {
    test(name, async () => {
      const opened = openRemote(
        'status',
        { options, given: new Set(given) },
        { HOME: absent, ...environment() },
      );
      if (refused === null) return assert.equal(await opened, null);
      await assert.rejects(opened, (error) => {
        assert.match(String(error), refused);
        assert.match((error as { hint?: string }).hint ?? '', hint ?? /./);
        return true;
      });
    });
  }
});
