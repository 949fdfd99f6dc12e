import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import { createPodArrivals } from './pod-arrivals.ts';

const pod = (name: string, uid: string): Pod => ({ metadata: { namespace: 'x', name, uid } });

/** Returns whether a promise has settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  return await Promise.race([
    promise.then(() => true),
    new Promise((resolve) => setImmediate(resolve, false)),
  ]).then((value) => value === true);
}

test('a pod is known by its identity, not by its name only', async () => {
  const arrivals = createPodArrivals(() => true);
  arrivals.podSeen(pod('a', 'old'));
  const waiting = arrivals.podKnown('x/a', 'new');
  assert.equal(await isSettled(waiting), false);
  arrivals.podSeen(pod('b', 'new'));
  assert.equal(await isSettled(waiting), false);
  arrivals.podSeen(pod('a', 'new'));
  assert.equal(await isSettled(waiting), true);
  // The object of the former pod is deleted late.
  arrivals.podGone(pod('a', 'old'));
  assert.equal(await isSettled(arrivals.podKnown('x/a', 'new')), true);
  arrivals.podGone(pod('a', 'new'));
  assert.equal(await isSettled(arrivals.podKnown('x/a', 'new')), false);
});

test('an attachment of a container runtime has another identity than the pod', async () => {
  const arrivals = createPodArrivals(() => true);
  arrivals.podSeen(pod('a', 'uid'));
  assert.equal(await isSettled(arrivals.podKnown('x/a', 'cni/sandbox')), true);
  arrivals.forget('x/a');
  assert.equal(await isSettled(arrivals.podKnown('x/a', 'cni/sandbox')), false);
});

test('a namespace is waited for', async () => {
  const known = new Set<string>();
  const arrivals = createPodArrivals((name) => known.has(name));
  const waiting = arrivals.namespaceKnown('x');
  arrivals.namespaceSeen();
  assert.equal(await isSettled(waiting), false);
  known.add('x');
  arrivals.namespaceSeen();
  assert.equal(await isSettled(waiting), true);
});
