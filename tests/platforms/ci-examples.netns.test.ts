import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { after, describe, test } from 'node:test';
import { action, exampleScripts } from '../testing/ci-files.ts';

/**
 * The scripts of action.yml and examples/ci, run as their systems run them, in jails that are like job containers
 * (tests/platforms/jail): privileged, with an overlay as root, and without the programs of a service manager.
 */

const ROOT = resolve(import.meta.dirname, '..', '..');
const JAIL = join(import.meta.dirname, 'jail');
const folder = mkdtempSync(join(tmpdir(), 'flt-ci-'));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Returns both outputs of a bash script in a jail, with its status in the last line. */
function inJail(script: string, options: readonly string[] = []): Promise<string> {
  const file = join(folder, 'script');
  writeFileSync(file, script);
  const words = ['--show', ROOT, '--show', folder, ...options, '--'];
  const asStep = `exec 2>&1; bash --noprofile --norc -eo pipefail ${file}; echo "status $?"`;
  const env = {
    ...process.env,
    PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
    JAIL_FOLDER: ROOT,
    COLUMNS: '400',
  };
  return new Promise((done) => {
    execFile(JAIL, [...words, 'sh', '-c', asStep], { env, timeout: 240_000 }, (_, out, error) =>
      done(out + error),
    );
  });
}

/** Returns the steps of the action as one script: each in a shell of its own, with the files that the runner reads between. */
function actionScript(given: Readonly<Record<string, string>>, next: string): string {
  const { inputs, runs } = action();
  const textFor = (text: string) =>
    text
      .replace(
        /\$\{\{ inputs\.([\w-]+) \}\}/g,
        (_, name: string) => given[name] ?? inputs[name]?.default ?? '',
      )
      .replace(/\$\{\{ github\.action_path \}\}/g, ROOT);
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const begin = [
    'export RUNNER_TEMP=/run/runner; mkdir $RUNNER_TEMP',
    ...['OUTPUT', 'ENV', 'PATH'].map(
      (name) => `export GITHUB_${name}=/run/runner/${name}; : > /run/runner/${name}`,
    ),
  ];
  const between = [
    'while IFS= read -r line; do export "$line"; done < "$GITHUB_ENV"',
    'while IFS= read -r line; do case :$PATH: in *":$line:"*) ;; *) export PATH="$line:$PATH" ;; esac; done < "$GITHUB_PATH"',
  ];
  const steps = runs.steps.flatMap(({ run = '', env = {} }) => {
    const variables = Object.entries(env).map(([name, text]) => `${name}=${quoted(textFor(text))}`);
    return [`env ${variables.join(' ')} bash --noprofile --norc -eo pipefail -c ${quoted(run)}`, ...between];
  });
  return [...begin, ...steps, next].join('\n');
}

describe('the action', { concurrency: false }, () => {
  test('the next steps have a cluster with the inputs, KUBECONFIG and fairlead', async () => {
    const given = { nodes: '2', mode: 'iptables', manifests: 'examples/hello.yaml\n', args: '--max-pods 50' };
    const next = `cat $GITHUB_OUTPUT; kubectl get nodes -o name; stat -c 'mode %a' "$KUBECONFIG"; fairlead exec client -- fairlead request http://hello; fairlead status | grep -c iptables; fairlead down`;
    const text = await inJail(actionScript(given, next));
    for (const wanted of [
      /^kubeconfig=\/run\/runner\/fairlead-ci\.kubeconfig\nname=ci$/m,
      /^node\/node-1\nnode\/node-2$/m,
      /^mode 600$/m,
      /^hello-/m,
      /^[1-9]\d*$/m,
      /^status 0$/m,
    ])
      assert.match(text, wanted);
  });

  test('an input with the characters of a shell is a value, and its refusal fails the step', async () => {
    const text = await inJail(actionScript({ mode: '$(touch /run/owned); ipvs' }, 'echo next'));
    assert.match(text, /--mode takes one of .*not "\$\(touch/);
    assert.match(text, /^status 2$/m);
    assert.doesNotMatch(text, /^next$/m);
  });
});

test('the job of GitLab: its command has a cluster, and a failure is kept as artifacts', async () => {
  const script = exampleScripts()['examples/ci/gitlab-ci.yml'] ?? [];
  const text = await inJail(
    [
      'mkdir -p /run/bin /run/job/deploy; cp examples/hello.yaml /run/job/deploy/app.yaml',
      // In place of the registry: the package of this repository.
      `printf '#!/bin/sh\\nshift 2\\nexec ${ROOT}/fairlead "$@"\\n' > /run/bin/npx`,
      `printf '#!/bin/sh\\nkubectl get nodes -o name\\nexit 5\\n' > /run/job/e2e.sh`,
      'chmod +x /run/bin/npx /run/job/e2e.sh; export PATH=/run/bin:$PATH; cd /run/job',
      ...script.map((line) => `(${line}) || echo "job $?"`),
      'ls evidence',
    ].join('\n'),
  );
  for (const wanted of [/^node\/node-1\nnode\/node-2$/m, /^job 5$/m, /^events\.txt$/m, /^status 0$/m])
    assert.match(text, wanted);
});

test('the development container: its commands end with a cluster', async () => {
  const script = exampleScripts()['examples/ci/devcontainer/devcontainer.json'] ?? [];
  const text = await inJail(
    [
      `mkdir /run/bin; printf '#!/bin/sh\\nexit 0\\n' > /run/bin/npm; ln -s ${ROOT}/fairlead /run/bin/fairlead`,
      'chmod +x /run/bin/npm; export PATH=/run/bin:$PATH',
      ...script,
      'fairlead status; fairlead down',
    ].join('\n'),
    // The volume of its file.
    ['--root', 'disk'],
  );
  assert.match(text, /node-1 .*Ready/);
  assert.match(text, /^status 0$/m);
});
