import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';

/** Packet tests whose clusters have a real control plane (docs/control-plane.md) instead of the embedded one. */

const folder = process.env['KUBEBUILDER_ASSETS'] ?? '';
const missing = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'].filter(
  (name) => folder === '' || !existsSync(join(folder, name)),
);
const skip = missing.length === 0 ? false : `KUBEBUILDER_ASSETS names no folder with ${missing.join(', ')}`;

/** One group of what a control plane is there for; the others are run by hand (CONTRIBUTING.md). */
const GROUPS = ['traffic', 'dns', 'load-balancer', 'nodes-change', 'pods', 'pod-features'];

describe('with a real control plane', { skip }, () => {
  for (const group of GROUPS) {
    test(`${group} passes`, async () => {
      const { NODE_TEST_CONTEXT: _, ...environment } = process.env;
      const child = spawn(
        process.execPath,
        [
          '--disable-warning=ExperimentalWarning',
          '--test',
          join(import.meta.dirname, `${group}.netns.test.ts`),
        ],
        { env: { ...environment, FAIRLEAD_CONTROL_PLANE: folder }, stdio: ['ignore', 'pipe', 'inherit'] },
      );
      const ended = new Promise<number | null>((resolve) => child.on('exit', resolve));
      const output = await text(child.stdout);
      assert.equal(await ended, 0, output);
      const passed = Number(/^ℹ pass ([0-9]+)$/m.exec(output)?.[1] ?? /^# pass ([0-9]+)$/m.exec(output)?.[1]);
      assert.ok(passed > 0, `no test ran:\n${output}`);
    });
  }
});
