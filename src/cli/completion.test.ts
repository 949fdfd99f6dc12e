import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { COMMANDS } from './commands.ts';
import { completionOf } from './completion.ts';
import { safeNames } from './names.ts';

async function scriptFor(shell: string): Promise<string> {
  let out = '';
  const output = {
    out: (text: string) => {
      out += text;
    },
    err() {},
    raw: () => {},
    interactive: false,
    columns: null,
    unread: new AbortController().signal,
  };
  assert.equal(await completionOf(COMMANDS).run([shell], output), 0);
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

/** A program in place of fairlead, with the names of a cluster; `other` is one of another cluster. */
const NAMES = `fairlead() { case "$2:$FAIRLEAD_CLUSTER" in
clusters:*) echo demo other ;;
nodes:*) echo node-1 ;;
pods:other) echo far ;;
pods:*) echo client shop/web ;;
services:*) echo svc/hello ;;
places:*) echo client node/node-1 outside ;;
targets:*) echo svc/hello client ;;
esac; }
timeout() { shift; "$@"; }
`;
const NAMED: readonly (readonly [words: readonly string[], completions: readonly string[]])[] = [
  [
    ['status', '--name', ''],
    ['demo', 'other'],
  ],
  [['mode', '--node', ''], ['node-1']],
  [['logs', 'cl'], ['client']],
  [
    ['logs', '--name', 'other', 'f'],
    ['far', '-f'],
  ],
  [['exec', 'node'], ['node/node-1']],
  [['open', 'svc'], ['svc/hello']],
  [['explain', 'svc'], ['svc/hello']],
];
for (const [words, completions] of NAMED) {
  test(`bash completes names of the cluster: fairlead ${words.join(' ')}`, async () => {
    const setup = `COMP_WORDS=(fairlead ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}`;
    const script = `${NAMES}${await scriptFor('bash')}\n${setup}\n_fairlead\nprintf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout, stderr } = spawnSync('bash', ['-c', script], { encoding: 'utf8' });
    assert.equal(stderr, '');
    assert.deepEqual(
      stdout.split('\n').filter((line) => line !== '' && completions.includes(line)),
      completions.filter((one) => one !== '-f'),
    );
  });
}

test('names that a shell would run are left out', () => {
  assert.deepEqual(safeNames(['web', 'shop/web', 'svc/a', '$(reboot)', '`id`', 'a b', 'a;b', '']), [
    ...['web', 'shop/web', 'svc/a'],
  ]);
});

test('the manual page has every command, and lines that man does not take for requests', async () => {
  const page = await scriptFor('man');
  for (const { name, internal } of COMMANDS)
    assert.equal(page.includes(`\n.SS ${name}\n`), internal !== true, name);
  const requests = page.split('\n').flatMap((line) => /^[.'](\w*)/.exec(line)?.[1] ?? []);
  assert.deepEqual(
    requests.filter((name) => !['TH', 'SH', 'SS', 'PP', 'nf', 'fi', 'TP', 'B', 'I'].includes(name)),
    [],
  );
});

test('zsh and fish have every command and option', async () => {
  assert.match(await scriptFor('zsh'), /^#compdef fairlead\n/);
  const fish = await scriptFor('fish');
  assert.match(fish, /-a status -d 'show processes/);
  assert.match(fish, /'__fish_seen_subcommand_from logs' -f -a '\(fairlead names pods 2>\/dev\/null\)'/);
  assert.match(fish, /'__fish_seen_subcommand_from up' -l ip-family -x -a 'ipv4 ipv6 dual' -d/);
});
