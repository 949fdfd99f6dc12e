import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { command } from './completion.ts';

async function scriptFor(shell: string): Promise<string> {
  let out = '';
  const output = {
    out: (text: string) => {
      out += text;
    },
    err() {},
    interactive: false,
    columns: null,
    unread: new AbortController().signal,
  };
  assert.equal(await command.run([shell], output), 0);
  return out;
}

const ROWS: readonly [words: string[], completions: string[]][] = [
  [['sta'], ['status']],
  [['help', 'ech'], ['echo']],
  [['up', '--ip'], ['--ip-family']],
  [
    ['up', '--ip-family', ''],
    ['ipv4', 'ipv6', 'dual'],
  ],
  [['mode', 'nft'], ['nftables']],
  [['up', '--nodes', ''], []],
];
for (const [words, completions] of ROWS) {
  test(`bash completes "fairlead ${words.join(' ')}"`, async () => {
    const setup = `COMP_WORDS=(fairlead ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}`;
    const script = `${await scriptFor('bash')}\n${setup}\n_fairlead\nprintf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout, stderr } = spawnSync('bash', ['-c', script], { encoding: 'utf8' });
    assert.equal(stderr, '');
    assert.deepEqual(
      stdout.split('\n').filter((line) => line !== ''),
      completions,
    );
  });
}

test('zsh and fish have every command and option', async () => {
  assert.match(await scriptFor('zsh'), /^#compdef fairlead\n/);
  const fish = await scriptFor('fish');
  assert.match(fish, /-a status -d 'show processes/);
  assert.match(fish, /'__fish_seen_subcommand_from up' -l ip-family -x -a 'ipv4 ipv6 dual' -d/);
});
