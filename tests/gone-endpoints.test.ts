import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { isNodeReady } from '../src/agent/followed-nodes.ts';
import { startInformer } from '../src/kube/informer.ts';
import { type EndpointSlice, RESOURCES } from '../src/kube/types.ts';
import { type ManualClock, manualClock, systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type GoneEndpoint, watchGoneEndpoints } from '../src/proxy/gone-endpoints.ts';

import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

type Result = 'timeout' | 'reset' | 'success';

interface Row {
  readonly name: string;
  /** The change to the endpoint 10.244.1.2 of node-1. */
  readonly change:
    | 'removed'
    | 'slice deleted'
    | 'moved'
    | 'not ready'
    | 'draining'
    | 'not ready on a dead node';
  /** The outcomes of attempts to connect to it; the last one repeats. */
  readonly dials: readonly Result[];
  readonly connected?: boolean;
  readonly ended: boolean;
}

const ROWS: readonly Row[] = [
  { name: 'removed, and it does not answer', change: 'removed', dials: ['timeout'], ended: true },
  {
    name: 'its slice is deleted, and it does not answer',
    change: 'slice deleted',
    dials: ['timeout'],
    ended: true,
  },
  { name: 'removed, but the pod lives on', change: 'removed', dials: ['success'], ended: false },
  {
    name: 'removed, with a closed port: its pod resets connections itself',
    change: 'removed',
    dials: ['reset'],
    ended: false,
  },
  { name: 'removed, slow once', change: 'removed', dials: ['timeout', 'success'], ended: false },
  { name: 'moved to another slice', change: 'moved', dials: ['timeout'], ended: false },
  { name: 'not ready, but its node lives', change: 'not ready', dials: ['timeout'], ended: false },
  { name: 'not ready on a dead node', change: 'not ready on a dead node', dials: ['timeout'], ended: true },
  { name: 'draining', change: 'draining', dials: ['timeout'], ended: false },
  {
    name: 'removed, but without connections',
    change: 'removed',
    dials: ['timeout'],
    connected: false,
    ended: false,
  },
];

const slice = (name: string, addresses: readonly string[], conditions = READY): EndpointSlice => ({
  metadata: { name, namespace: 'default', labels: { 'kubernetes.io/service-name': 'web' } },
  addressType: 'IPv4',
  ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
  endpoints: addresses.map((address) => ({ addresses: [address], nodeName: 'node-1', conditions })),
});
const READY = { ready: true, serving: true, terminating: false };

describe('connections to endpoints are ended', () => {
  let plane: ControlPlane;
  let ending: AbortController;
  before(async () => {
    plane = await startControlPlane();
    await plane.addNode('node-1');
  });
  after(() => plane?.close());
  afterEach(async () => {
    ending.abort();
    for (const name of ['a', 'b']) {
      await plane.client.delete(RESOURCES.endpointSlices, name, { namespace: 'default' }).catch(() => {});
    }
    await plane.beat('node-1');
  });

  for (const row of ROWS) {
    test(`${row.ended ? 'yes' : 'no'}: ${row.name}`, async () => {
      ending = new AbortController();
      const { client } = plane;
      const common = {
        client,
        clock: systemClock,
        random: Math.random,
        logger: silentLogger,
        signal: ending.signal,
      };
      const slices = startInformer<EndpointSlice>({ ...common, resource: RESOURCES.endpointSlices });
      await client.create(RESOURCES.endpointSlices, slice('a', ['10.244.1.2', '10.244.1.3']));
      await slices.synced;
      await eventually(
        () => slices.get('default/a'),
        (known) => known !== undefined,
      );
      const clock: ManualClock = manualClock();
      const ended: GoneEndpoint[] = [];
      const asked: GoneEndpoint[] = [];
      const dials = [...row.dials];
      const answers: Promise<boolean>[] = [];
      const watch = watchGoneEndpoints({
        slices,
        isNodeReady(name) {
          const answer = isNodeReady(client, name);
          answers.push(answer);
          return answer;
        },
        clock,
        logger: silentLogger,
        connected(endpoints) {
          asked.push(...endpoints);
          return row.connected === false ? [] : endpoints;
        },
        dial: async () => (dials.length > 1 ? dials.shift() : dials[0]) ?? null,
        async end(endpoints) {
          ended.push(...endpoints);
        },
      });
      await change(row.change);
      // By then the decision is final: the informer has the change, and the time has passed.
      await eventually(() => slices.list(), settledAfter(row.change));
      clock.advance(500);
      // Here, attempts to connect end in microtasks.
      await new Promise((resolve) => setImmediate(resolve));
      await Promise.all(answers);
      await new Promise((resolve) => setImmediate(resolve));
      await watch.close();
      assert.deepEqual(ended, row.ended ? [{ ip: '10.244.1.2', port: 8080 }] : []);
      assert.ok(asked.every(({ ip }) => ip === '10.244.1.2'));
    });
  }

  async function change(kind: Row['change']): Promise<void> {
    const { client } = plane;
    const put = (next: EndpointSlice) =>
      client.patch(
        RESOURCES.endpointSlices,
        'a',
        'merge',
        { endpoints: next.endpoints },
        { namespace: 'default' },
      );
    const withConditions = (conditions: typeof READY) => {
      const next = slice('a', ['10.244.1.2', '10.244.1.3']);
      const [first, second] = next.endpoints ?? [];
      return put({
        ...next,
        endpoints: [{ ...first, addresses: ['10.244.1.2'], conditions }, second ?? { addresses: [] }],
      });
    };
    switch (kind) {
      case 'removed':
        return void (await put(slice('a', ['10.244.1.3'])));
      case 'slice deleted':
        await client.create(RESOURCES.endpointSlices, slice('b', ['10.244.1.3']));
        return void (await client.delete(RESOURCES.endpointSlices, 'a', { namespace: 'default' }));
      case 'moved':
        await put(slice('a', ['10.244.1.3']));
        return void (await client.create(RESOURCES.endpointSlices, slice('b', ['10.244.1.2'])));
      case 'not ready':
        return void (await withConditions({ ready: false, serving: false, terminating: false }));
      case 'draining':
        return void (await withConditions({ ready: false, serving: true, terminating: true }));
      case 'not ready on a dead node': {
        const conditions = [{ type: 'Ready', status: 'Unknown', reason: 'NodeStatusUnknown' }];
        await client.patch(
          RESOURCES.nodes,
          'node-1',
          'strategic',
          { status: { conditions } },
          { subresource: 'status' },
        );
        return void (await withConditions({ ready: false, serving: false, terminating: false }));
      }
    }
  }

  /** Returns true when the informer has the change. */
  function settledAfter(kind: Row['change']): (slices: EndpointSlice[]) => boolean {
    const find = (slices: EndpointSlice[], name: string) =>
      slices.find(({ metadata }) => metadata?.name === name);
    switch (kind) {
      case 'removed':
        return (all) => find(all, 'a')?.endpoints?.length === 1;
      case 'slice deleted':
        return (all) => !find(all, 'a') && find(all, 'b') !== undefined;
      case 'moved':
        return (all) => find(all, 'b') !== undefined;
      default:
        return (all) => find(all, 'a')?.endpoints?.[0]?.conditions?.ready === false;
    }
  }
});
