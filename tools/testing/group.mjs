// Runs several test files in one process, one after another, each as a suite with the file's name: node group.mjs FILE…
import { resolve } from 'node:path';
import { suite } from 'node:test';
import { pathToFileURL } from 'node:url';

for (const file of process.argv.slice(2)) await suite(file, () => import(pathToFileURL(resolve(file)).href));
