import { dirname, join } from 'node:path';
import { runKept } from './kept-code.ts';
import { IN_ONE_FILE } from './one-file-commands.ts';

const isBundle = import.meta.filename.endsWith('.mjs');
const folder = dirname(import.meta.filename);
const command = process.argv[2] ?? '';
// A run that only prints help would keep little code.
const file =
  isBundle && Object.hasOwn(IN_ONE_FILE, command) && !process.argv.includes('--help')
    ? IN_ONE_FILE[command]
    : undefined;
const main: { runMain(): Promise<void> } = file
  ? runKept(join(folder, file), join(folder, 'compile-cache', 'whole'))
  : await import(isBundle ? './main.mjs' : './main.ts');
await main.runMain();
