import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, test } from 'node:test';
import { COMMANDS } from './commands.ts';
import { main } from './main.ts';
import { IN_ONE_FILE } from './one-file-commands.ts';

const README = readFileSync(resolve(import.meta.dirname, '..', '..', 'README.md'), 'utf8');
const shown = COMMANDS.filter(({ internal }) => !internal);

async function run(...words: string[]): Promise<{ status: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const status = await main(words, {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
    raw: () => {},
    interactive: false,
    columns: null,
    unread: new AbortController().signal,
  });
  return { status, out, err };
}

test("README's command table equals the commands' option tables", async () => {
  const rows = await Promise.all(
    shown.map(async ({ load }) => {
      const { command } = await load();
      return `| \`${command.synopsis.replaceAll('|', '\\|')}\` | ${command.summary} |`;
    }),
  );
  const table = ['| command | description |', '| --- | --- |', ...rows].join('\n');
  const start = README.indexOf('| command | description |');
  assert.equal(README.slice(start, README.indexOf('\n\n', start)), table);
});

test('the commands that are one file each are commands', () => {
  const names = COMMANDS.map(({ name }) => name);
  for (const [name, file] of Object.entries(IN_ONE_FILE)) {
    assert.ok(names.includes(name), name);
    assert.equal(file, `./${name}.cjs`);
  }
});

for (const { name, summary, load } of COMMANDS) {
  test(`${name}: its name and summary equal those in the overview; its help fits 80 columns`, async () => {
    const { command } = await load();
    assert.deepEqual([command.name, command.summary], [name, summary]);
    const lines = command.help.split('\n');
    assert.deepEqual(
      lines.filter((line) => line.length > 80),
      [],
    );
    assert.match(command.help, new RegExp(`^Usage: fairlead ${name}\\b`));
  });
}

describe('the command line', () => {
  const rows: { words: string[]; status: number; out?: RegExp; err?: RegExp }[] = [
    { words: [], status: 0, out: /Usage: fairlead COMMAND/ },
    { words: ['--help'], status: 0, out: /switch the proxy mode without interrupting traffic/ },
    { words: ['help'], status: 0, out: /Usage: fairlead COMMAND/ },
    { words: ['help', 'mode'], status: 0, out: /^Usage: fairlead mode MODE \[OPTION…\]/ },
    { words: ['mode', '--help'], status: 0, out: /^Usage: fairlead mode MODE \[OPTION…\]/ },
    {
      words: ['exec', '-h'],
      status: 0,
      out: /^Usage: fairlead exec POD\|node\/NAME\|outside \[OPTION…\] --/,
    },
    { words: ['--version'], status: 0, out: /^fairlead [0-9.]+\n$/ },
    {
      words: ['sttaus'],
      status: 2,
      err: /unknown command sttaus: did you mean status\?\n {2}try: fairlead --help/,
    },
    { words: ['contro-plane'], status: 2, err: /unknown command contro-plane\n/ },
    { words: ['--colour'], status: 2, err: /unknown option --colour/ },
    {
      words: ['explain', 'client'],
      status: 2,
      err: /^fairlead: missing TO\n {2}try: fairlead explain --help\n$/,
    },
    { words: ['mode', 'iptable'], status: 2, err: /MODE is one of .*did you mean iptables\?/ },
    {
      words: ['fault', '--kubeconfig', 'k'],
      status: 2,
      err: /fault works on local clusters only, which --name selects/,
    },
    { words: ['up', '--plug-in'], status: 2, err: /unknown option --plug-in\n/ },
    { words: ['image', 'ls', '--plain-http'], status: 2, err: /--plain-http does not apply to image ls/ },
    { words: ['request', 'ftp://x'], status: 2, err: /URL is http:.*not "ftp:\/\/x"/ },
    {
      words: ['flows', '--verdict', 'reset,failled'],
      status: 2,
      err: /--verdict takes .*failed.*not "failled"/,
    },
    {
      words: ['flows', '--since', 'yesterday'],
      status: 2,
      err: /--since takes a duration .*not "yesterday"/,
    },
    { words: ['trace', '--watch', 'svc/hello', 'client'], status: 2, err: /--watch does not take FROM/ },
    { words: ['trace', 'client'], status: 2, err: /missing TO/ },
    { words: ['flows', '--kind', 'opend'], status: 2, err: /--kind takes .*not "opend"/ },
  ];
  for (const { words, status, out, err } of rows) {
    test(`fairlead ${words.join(' ')}`, async () => {
      const result = await run(...words);
      assert.equal(result.status, status, result.err);
      if (out) assert.match(result.out, out);
      else assert.equal(result.out, '');
      if (err) assert.match(result.err, err);
      else assert.equal(result.err, '');
    });
  }
});
