import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { runKept } from './kept-code.ts';
import { IN_ONE_FILE } from './one-file-commands.ts';

const isBundle = import.meta.filename.endsWith('.mjs');
const folder = dirname(import.meta.filename);
const command = process.argv[2] ?? '';
// A run that only prints help would keep little code.
const file =
  isBundle && Object.hasOwn(IN_ONE_FILE, command) && !process.argv.includes('--help')
    ? join(folder, IN_ONE_FILE[command] ?? '')
    : null;
// The image has no file for the commands of local clusters.
const main: { runMain(): Promise<void> } =
  file !== null && existsSync(file)
    ? runKept(file, join(folder, 'compile-cache', 'whole'))
    : await import(isBundle ? './main.mjs' : './main.ts');
await main.runMain();
