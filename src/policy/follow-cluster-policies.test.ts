import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createClient } from '../kube/client.ts';
import { jsonAnswer } from '../kube/testing/json-answer.ts';
import type { Transport } from '../kube/transport.ts';
import { manualClock } from '../lib/clock.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { followClusterPolicies } from './follow-cluster-policies.ts';

const DEFINITION = {
  metadata: { name: 'clusternetworkpolicies.policy.networking.k8s.io', resourceVersion: '3' },
  spec: { versions: [{ name: 'v1alpha2', served: true }] },
  status: { conditions: [{ type: 'Established', status: 'True' }] },
};
const POLICY = { metadata: { name: 'one', uid: 'u', resourceVersion: '4' }, spec: {} };

/** An API server with the definition and one policy, which refuses lists of definitions as a test says. */
function scene(refused: (path: string) => number | null, versions = DEFINITION.spec.versions) {
  const state = { refused, requests: [] as string[] };
  const transport: Transport = async ({ path, signal }) => {
    state.requests.push(path);
    const status = state.refused(path);
    if (status !== null)
      return jsonAnswer(status, { kind: 'Status', code: status, message: `status ${status}` });
    if (path.includes('watch=true')) {
      await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)));
    }
    const named = decodeURIComponent(path);
    const items = named.includes('/customresourcedefinitions')
      ? named.includes(`=${DEFINITION.metadata.name}`)
        ? [{ ...DEFINITION, spec: { versions } }]
        : []
      : [POLICY];
    return jsonAnswer(200, { metadata: { resourceVersion: '5' }, items });
  };
  const warnings: string[] = [];
  const logger: Logger = { ...silentLogger, warn: (_: object, text?: string) => warnings.push(text ?? '') };
  const clock = manualClock();
  const stop = new AbortController();
  const set: string[] = [];
  const followed = followClusterPolicies(
    { client: createClient(transport, 'test'), clock, random: () => 0.5, logger, signal: stop.signal },
    { onSet: (kind, { metadata }) => set.push(`${kind} ${metadata?.name}`), onDelete() {} },
  );
  return { state, warnings, clock, stop, set, followed };
}

test('policies of installed definitions are known when following begins, without a request more than needed', async () => {
  const { state, warnings, stop, set, followed } = scene(() => null);
  await followed;
  assert.deepEqual(set, ['ClusterNetworkPolicy one']);
  assert.deepEqual(warnings, []);
  const lists = state.requests.filter((path) => !path.includes('watch=true'));
  // One for each kind of definition, and one of policies.
  assert.equal(lists.length, 4);
  stop.abort(new Error('the end'));
});

for (const status of [403, 404]) {
  test(`definitions that are refused (${status}) are reported once, do not hold up the start, and are followed later`, async () => {
    const { state, warnings, clock, stop, set, followed } = scene((path) =>
      path.includes('customresourcedefinitions') ? status : null,
    );
    await followed;
    assert.deepEqual(set, []);
    assert.equal(warnings.length, 1);
    assert.match(
      warnings[0] ?? '',
      new RegExp(
        `not enforced: status ${status}; allow the agent to list and watch customresourcedefinitions`,
      ),
    );
    state.refused = () => null;
    await eventually(
      async () => {
        clock.advance(1000);
        return set.length;
      },
      (known) => known === 1,
    );
    assert.equal(warnings.length, 1);
    stop.abort(new Error('the end'));
  });
}

test('an end before the definitions are known is an error', async () => {
  const { stop, followed } = scene((path) => (path.includes('customresourcedefinitions') ? 500 : null));
  stop.abort(new Error('the end'));
  await assert.rejects(followed, /the end/);
});

for (const [served, version] of [
  [['v1beta1', 'v1alpha2'], 'v1beta1'],
  [['v1beta1'], 'v1beta1'],
  [['v1alpha2'], 'v1alpha2'],
  [['v2'], null],
] as const) {
  test(`of a definition that serves ${served.join(' and ')}, ${version ?? 'no version'} is followed`, async () => {
    const { state, warnings, stop, set, followed } = scene(
      () => null,
      served.map((name) => ({ name, served: true })),
    );
    await followed;
    assert.deepEqual(set, version === null ? [] : ['ClusterNetworkPolicy one']);
    assert.equal(warnings.length, version === null ? 1 : 0);
    const lists = state.requests.filter((path) => path.includes('/clusternetworkpolicies'));
    for (const path of lists) assert.match(path, new RegExp(`/${version}/`));
    assert.equal(lists.length > 0, version !== null);
    stop.abort(new Error('the end'));
  });
}
