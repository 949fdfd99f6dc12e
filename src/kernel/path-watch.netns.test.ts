import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { watchPath } from './path-watch.ts';

/** Runs Node.js in a user namespace of its own, whose users may have as many watches as the first argument says. */
const WITH_LIMIT = `
echo "$1" > /proc/sys/user/max_inotify_instances
"$2" --disable-warning=ExperimentalWarning -e "$3" "$4" & 
while read -r limit; do echo "$limit" > /proc/sys/user/max_inotify_instances; done
kill $!
`;
const PRINT_CHANGES = `
import(process.argv[1] + '/path-watch.ts').then(({ watchPath }) => {
  watchPath(process.argv[2], (name) => console.log(name));
  console.log('watching');
  setInterval(() => {}, 1e9);
});
`;

test('a folder is watched', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-'));
  const names: (string | null)[] = [];
  const watched = watchPath(folder, (name) => names.push(name));
  try {
    writeFileSync(join(folder, 'a'), '');
    await eventually(() => names.includes('a'));
  } finally {
    watched.close();
    rmSync(folder, { recursive: true });
  }
});

test('processes of the same user have used up the watches: changes are noticed, and watched again later', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-'));
  const script = PRINT_CHANGES.replace('process.argv[2]', JSON.stringify(folder));
  const words = ['--user', '--map-root-user', 'sh', '-c', WITH_LIMIT, 'sh', '0', process.execPath, script];
  const child = spawn('unshare', [...words, import.meta.dirname], { stdio: ['pipe', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  try {
    await eventually(() => out.includes('watching'), Boolean, 30_000);
    await eventually(() => out.includes('null'), Boolean, 30_000);
    child.stdin.write('100\n');
    let at = 0;
    await eventually(
      () => {
        writeFileSync(join(folder, `file-${++at}`), '');
        return out;
      },
      (text) => text.includes('file-'),
      30_000,
    );
  } finally {
    child.stdin.end();
    rmSync(folder, { recursive: true });
  }
});
