import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets
  ? false
  : 'KUBEBUILDER_ASSETS does not name a folder with e2e.test, ginkgo, kubectl and images/';

test("upstream's specs pass, one for each kind of Service", { skip }, () => {
  const run = join(import.meta.dirname, 'run.ts');
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [
      '--disable-warning=ExperimentalWarning',
      run,
      'quick',
      '--name',
      'e2e-quick',
      '--procs',
      '3',
      '--no-save',
    ],
    { encoding: 'utf8' },
  );
  assert.equal(status, 0, `${stdout}\n${stderr}`);
});
