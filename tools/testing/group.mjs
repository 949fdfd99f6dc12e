// Runs several test files in one process, one after another, each as a suite with the file's name: node group.mjs FILE…
import { resolve } from 'node:path';
import { suite } from 'node:test';
import 'node:tls';
import { pathToFileURL } from 'node:url';

/** Connections and timers of the last file may end in this time. */
const CLOSING_MS = 10_000;
const REPORTING_MS = 2000;

for (const file of process.argv.slice(2)) await suite(file, () => import(pathToFileURL(resolve(file)).href));

// What one file leaves open must not keep the process: the runner reports the end when nothing is left to do.
setTimeout(() => {
  process.stderr.write(`left open by a file: ${process.getActiveResourcesInfo().join(' ')}\n`);
  process.emit('beforeExit', 0);
  setTimeout(() => process.exit(), REPORTING_MS);
}, CLOSING_MS).unref();
