// Writes the generated files below deploy/: node tools/deployment-files.mjs
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deploymentFiles } from '../src/cli/deployment-files.ts';

const deploy = join(dirname(dirname(fileURLToPath(import.meta.url))), 'deploy');
for (const [path, text] of deploymentFiles()) {
  mkdirSync(dirname(join(deploy, path)), { recursive: true });
  writeFileSync(join(deploy, path), text);
}
