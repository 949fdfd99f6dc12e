import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

/** Packet tests whose clusters have a real control plane (docs/control-plane.md) instead of the embedded one. */

const folder = process.env['KUBEBUILDER_ASSETS'] ?? '';
const missing = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'].filter(
  (name) => folder === '' || !existsSync(join(folder, name)),
);
const skip = missing.length === 0 ? false : `KUBEBUILDER_ASSETS names no folder with ${missing.join(', ')}`;

/**
 * The folder's kubectl comes first. kubectl before 1.34 may read a command's first output before it has made the stream for
 * it, and discards it ("Unknown stream id 1", kubernetes/kubernetes#131189).
 */
const PATH = `${folder}:${process.env['PATH']}`;

interface Group {
  readonly name: string;
  /** The names of the tests that depend on controllers and on admission; null: only for the full product. */
  readonly tests: RegExp | null;
}

/**
 * What a control plane is there for; the other files are run by hand (CONTRIBUTING.md). Of packets, nodes and agents alone,
 * upstream's programs know nothing: the embedded control plane's clusters prove these. control-plane.matrix.test.ts has names,
 * addresses of load balancers, volumes, joining and leaving nodes and killed programs, real-cluster.real.test.ts DNS of every
 * kind and announced load balancers. The full product adds the files that a control plane changes least.
 */
const GROUPS: readonly Group[] = [
  { name: 'traffic', tests: /^(rolling update|without preStop|a pod is stopped only)/ },
  { name: 'pods', tests: null },
  { name: 'load-balancer', tests: null },
  { name: 'pod-features', tests: null },
  { name: 'dns', tests: null },
  { name: 'nodes-change', tests: null },
];

describe('with a real control plane', { skip }, () => {
  for (const { name, tests } of GROUPS) {
    if (tests === null && !TAKES_FULL_PRODUCT) continue;
    test(`${name} passes`, async () => {
      const { NODE_TEST_CONTEXT: _, ...environment } = process.env;
      const child = spawn(
        process.execPath,
        [
          '--disable-warning=ExperimentalWarning',
          '--test',
          ...(TAKES_FULL_PRODUCT ? [] : [`--test-name-pattern=${tests}`]),
          join(import.meta.dirname, `${name}.netns.test.ts`),
        ],
        {
          env: { ...environment, PATH, FAIRLEAD_CONTROL_PLANE: folder },
          stdio: ['ignore', 'pipe', 'inherit'],
        },
      );
      const ended = new Promise<number | null>((resolve) => child.on('exit', resolve));
      const output = await text(child.stdout);
      assert.equal(await ended, 0, output);
      const passed = Number(/^ℹ pass ([0-9]+)$/m.exec(output)?.[1] ?? /^# pass ([0-9]+)$/m.exec(output)?.[1]);
      assert.ok(passed > 0, `no test ran:\n${output}`);
    });
  }
});
