import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { availableModes } from '../../src/agent/dataplanes.ts';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import { type Cluster, HELLO, reserveCluster, startCluster } from './cluster.ts';
import { CLUSTER_POLICY_DEFINITIONS } from './cluster-policy-definitions.ts';
import { assertConforms } from './flow-report.ts';
import { machineState } from './machine.ts';
import { MANIFEST } from './policy-traffic.ts';
import {
  testAgentKilled,
  testCleanup,
  testModeSwitch,
  testRestart,
  testTakeDown,
} from './promise-lifecycle.ts';
import { testPolicies } from './promise-policies.ts';
import { PROMISE_SCENE, type PromiseScene } from './promise-scene.ts';
import {
  testDatagramsOfNodes,
  testFailover,
  testLoadBalancer,
  testNames,
  testRollOut,
  testTrace,
} from './promise-traffic.ts';

/** Four at a time take a fifth of a processor. */
const LOAD = ['--timeout', '15000', '--concurrency', '4', '--rate', '30', '--count', '100'];
const PATIENCE_MS = 90_000;

/**
 * Proves the main promise in a mode on one cluster of two nodes and both families, from `up` to `down`. The tests depend on
 * their order: each leaves the cluster as the next one needs it.
 */
export function testPromise(mode: Mode, next: Mode): void {
  const skip = availableModes().includes(mode) ? false : `this machine has no ${mode} mode`;
  describe(`the promise in ${mode} mode`, { skip }, () => {
    const reserved = reserveCluster();
    let earlier: readonly string[] = [];
    let started: Cluster | undefined;
    const running = () => {
      assert.ok(started);
      return started;
    };
    const scene: PromiseScene = {
      mode,
      next,
      load: LOAD,
      patienceMs: PATIENCE_MS,
      get cluster() {
        return running();
      },
      get earlier() {
        return earlier;
      },
      onNode: (...words) =>
        execFileSync('ip', ['netns', 'exec', `fl-${running().name}-node-1`, ...words], { encoding: 'utf8' }),
      async clusterIPs(service) {
        const text = await running().ask('get', 'service', service, '-o', 'jsonpath={.spec.clusterIPs[*]}');
        const [v4 = '', v6 = ''] = text.split(' ');
        return [v4, v6];
      },
    };
    before(async () => {
      earlier = machineState(reserved.name, reserved.stateRoot);
      started = await startCluster(
        ['--nodes', '2', '--ip-family', 'dual', '--mode', mode, '-f', HELLO],
        reserved,
      );
      await started.apply(CLUSTER_POLICY_DEFINITIONS);
      await started.apply([MANIFEST, PROMISE_SCENE].join('\n---'));
      const timeout = `--timeout=${scene.patienceMs / 1000}s`;
      await started.ask('wait', '--for=condition=Ready', 'pod', '--all', timeout);
    });
    after(() => started?.down());

    test('every flow from pods, nodes and outside, in IPv4 and IPv6', () =>
      assertConforms(scene.cluster, mode, []));
    testNames(scene);
    testDatagramsOfNodes(scene);
    testTrace(scene);
    testLoadBalancer(scene);
    // They mostly wait, each for objects of its own.
    describe('at the same time', { concurrency: 3 }, () => {
      describe('policies', { concurrency: 1 }, () => testPolicies(scene));
      testRollOut(scene);
      testFailover(scene);
    });
    testAgentKilled(scene);
    testCleanup(scene);
    testRestart(scene);
    testModeSwitch(scene);
    testTakeDown(scene);
  });
}
