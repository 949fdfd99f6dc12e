import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { COMMANDS } from '../src/cli/commands.ts';
import { action, exampleScripts } from './testing/ci-files.ts';

/** The files for CI systems: the action and examples/ci. tests/platforms/ci-examples.netns.test.ts runs them. */

const ROOT = resolve(import.meta.dirname, '..');

test('the action is a composite one whose steps have what the runner requires', () => {
  const { name, description, runs } = action();
  assert.ok(name && description);
  assert.equal(runs.using, 'composite');
  for (const step of runs.steps) assert.ok(step.run && step.shell, step.name ?? 'a step without a name');
});

test('the action uses each of its inputs, and no other', () => {
  const { inputs, runs } = action();
  const used = runs.steps.flatMap(({ env = {} }) =>
    Object.values(env).flatMap((text) =>
      [...text.matchAll(/\$\{\{ inputs\.([\w-]+) \}\}/g)].map(([, one]) => one),
    ),
  );
  assert.deepEqual(used.toSorted(), Object.keys(inputs).toSorted());
});

test('inputs reach scripts of the action by variables only: their text is never a part of a script', () => {
  for (const { run = '' } of action().runs.steps) assert.doesNotMatch(run, /\$\{\{/);
});

test('outputs of the action are those of its steps', () => {
  const { outputs, runs } = action();
  for (const [output, { value }] of Object.entries(outputs)) {
    const [, id, written] = /^\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}$/.exec(value) ?? [];
    const step = runs.steps.find((one) => one.id === id);
    assert.match(step?.run ?? '', new RegExp(`"${written}=.*>> "\\$GITHUB_OUTPUT"`), output);
  }
});

describe('scripts name commands and options that exist', () => {
  for (const [file, scripts] of Object.entries(exampleScripts())) {
    test(file, async () => {
      const calls = scripts
        .flatMap((script) => script.split('\n'))
        .flatMap((line) => [...line.matchAll(/fairlead"? ([a-z][a-z-]*)(.*)/g)])
        .flatMap(([, command = '', rest = '']) =>
          COMMANDS.some(({ name }) => name === command) ? [{ command, rest }] : [],
        );
      assert.ok(calls.length > 0);
      for (const { command, rest } of calls) {
        const found = await COMMANDS.find(({ name }) => name === command)?.load();
        const [own = ''] = rest.split(' -- ');
        for (const [option] of own.matchAll(/--[a-z][a-z-]*/g))
          assert.match(found?.command.help ?? '', new RegExp(`${option}\\b`), `${command} ${option}`);
      }
    });
  }
});

test('the options that the action collects are those of up', async () => {
  const text = readFileSync(join(ROOT, 'action.yml'), 'utf8');
  const up = await COMMANDS.find(({ name }) => name === 'up')?.load();
  const options = [...text.matchAll(/words\+?=\((.*)\)/g)].flatMap(
    ([, words = '']) => words.match(/--[a-z-]+/g) ?? [],
  );
  assert.ok(options.length > 5);
  for (const option of options) assert.match(up?.command.help ?? '', new RegExp(`${option}\\b`));
});
