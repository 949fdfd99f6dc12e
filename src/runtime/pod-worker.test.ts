import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { Container, Pod } from '../kube/types.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { KubeletError } from './kubelet-error.ts';
import { PodWorker } from './pod-worker.ts';
import { type FakeNode, fakeNode } from './testing/fake-node.ts';
import type { Traffic } from './traffic-end.ts';

type PodSpec = NonNullable<Pod['spec']>;

/** What happens to a pod; the worker is woken after each end of a process, as by the kubelet. */
type Step =
  | 'start'
  | `${string} exits ${number}`
  | 'lose the sandbox'
  | 'restart agent'
  | `wait ${number}`
  | `delete within ${number}`
  | 'object gone'
  | 'ignore SIGTERM'
  | `network ${'fails' | 'works' | 'lacks a port'}`
  | `traffic ${Traffic}`
  | 'another pod takes the processors'
  | 'new ephemeral container';

interface Row {
  readonly what: string;
  readonly spec?: Partial<PodSpec>;
  readonly steps: readonly Step[];
  /** The actions after those of the first start, which `STARTED` has, with their time in milliseconds. */
  readonly actions: readonly string[];
}

const main: Container = { name: 'main', image: 'app' };
const ONCE = { restartPolicy: 'Never' } as const;
const sidecar = { name: 'proxy', image: 'app', restartPolicy: 'Always' } as Container;

/** The actions of a pod's first start, up to its containers. */
const PREPARED = ['0 create sandbox', '0 attach network'];
const STARTED = [...PREPARED, '0 start main-0', '0 event Started', '0 status Running'];
/** The actions that end a pod whose containers have ended. */
const removed = (ms: number) => [`${ms} detach network`, `${ms} remove sandbox`];

const ROWS: readonly Row[] = [
  { what: 'gets namespaces, addresses and files before its containers', steps: ['start'], actions: STARTED },
  {
    what: 'on the host network gets no device',
    spec: { hostNetwork: true },
    steps: ['start'],
    actions: STARTED.filter((action) => action !== '0 attach network'),
  },
  {
    what: 'starts its containers together',
    spec: { containers: [main, { ...main, name: 'other' }] },
    steps: ['start'],
    actions: [
      ...[...PREPARED, '0 start main-0', '0 start other-0', '0 event Started', '0 event Started'],
      '0 status Running',
    ],
  },
  {
    what: 'runs its init containers one by one, before the others',
    spec: {
      initContainers: [
        { ...main, name: 'one' },
        { ...main, name: 'two' },
      ],
    },
    steps: ['start', 'one exits 0', 'two exits 0'],
    actions: [
      ...[...PREPARED, '0 start one-0', '0 event Started', '0 status Pending'],
      ...['0 start two-0', '0 event Started', '0 start main-0', '0 event Started', '0 status Running'],
    ],
  },
  {
    what: 'fails with an init container that may not restart',
    spec: { ...ONCE, initContainers: [{ ...main, name: 'one' }] },
    steps: ['start', 'one exits 1'],
    actions: [
      ...[...PREPARED, '0 start one-0', '0 event Started', '0 status Pending'],
      ...['0 remove one-0', '0 status Failed', ...removed(0)],
    ],
  },
  {
    what: 'keeps a sidecar running beside its containers, and stops it after them',
    spec: { ...ONCE, initContainers: [sidecar] },
    steps: ['start', 'main exits 0'],
    actions: [
      ...[...PREPARED, '0 start proxy-0', '0 event Started', '0 start main-0', '0 event Started'],
      ...['0 status Running', '0 SIGTERM proxy-0', '0 remove proxy-0', '0 remove main-0'],
      ...['0 status Succeeded', ...removed(0)],
    ],
  },
  {
    what: 'succeeds when all its containers have, and gives back its address',
    spec: ONCE,
    steps: ['start', 'main exits 0'],
    actions: [...STARTED, '0 remove main-0', '0 status Succeeded', ...removed(0)],
  },
  {
    what: 'fails when a container has, and none may restart',
    spec: ONCE,
    steps: ['start', 'main exits 3'],
    actions: [...STARTED, '0 remove main-0', '0 status Failed', ...removed(0)],
  },
  {
    what: 'restarts a container that ends',
    steps: ['start', 'main exits 1'],
    actions: [...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
  },
  {
    what: 'waits for the back-off of a container',
    steps: ['start', 'main exits 1', 'main exits 1', 'wait 10000'],
    actions: [
      ...[...STARTED, '0 remove main-0', '0 start main-1', '0 event Started', '0 event BackOff'],
      ...['10000 remove main-1', '10000 start main-2', '10000 event Started'],
    ],
  },
  {
    what: 'is rejected if the node has no room for it',
    spec: { containers: [{ ...main, resources: { requests: { cpu: '1' } } }] },
    steps: ['another pod takes the processors', 'start'],
    actions: ['0 event OutOfcpu', '0 status Failed OutOfcpu'],
  },
  {
    what: 'that the node does not support stays pending, with one event',
    spec: { containers: [{ ...main, volumeDevices: [{ name: 'disk', devicePath: '/dev/a' }] }] },
    steps: ['start', 'wait 60000', 'start'],
    actions: ['0 event UnsupportedField', '0 status Pending'],
  },
  {
    what: 'retries a failed network after 0.1 s, then 0.2 s',
    steps: ['network fails', 'start', 'wait 100', 'network works', 'wait 150', 'wait 50'],
    actions: [
      ...[...PREPARED, '0 event FailedCreatePodSandBox', '0 status Pending'],
      ...['100 attach network', '100 event FailedCreatePodSandBox'],
      ...['300 attach network', '300 start main-0', '300 event Started', '300 status Running'],
    ],
  },
  {
    what: 'fails if another pod has its host port',
    steps: ['network lacks a port', 'start', 'wait 60000'],
    actions: [...PREPARED, '0 event NodePorts', '0 remove sandbox', '0 status Failed NodePorts'],
  },
  {
    what: 'gets a new sandbox, and restarts, if its pause process dies',
    steps: ['start', 'lose the sandbox'],
    actions: [
      ...[...STARTED, '0 SIGKILL main-0', '0 create sandbox', '0 attach network'],
      ...['0 remove main-0', '0 start main-1', '0 event Started'],
    ],
  },
  {
    what: 'fails at its deadline',
    spec: { ...ONCE, activeDeadlineSeconds: 10 },
    steps: ['start', 'wait 9950', 'wait 50'],
    actions: [
      ...[...STARTED, '10000 event DeadlineExceeded', '10000 SIGTERM main-0', '10000 remove main-0'],
      ...['10000 status Failed DeadlineExceeded', ...removed(10_000)],
    ],
  },
  {
    what: 'that is deleted is stopped, removed, and then its object',
    steps: ['start', 'delete within 30'],
    actions: [
      ...[...STARTED, '0 event Killing', '0 SIGTERM main-0', '0 remove main-0', ...removed(0)],
      ...['0 status Failed', 'finalize'],
    ],
  },
  {
    what: 'that ignores SIGTERM is killed at the end of its grace period',
    steps: ['start', 'ignore SIGTERM', 'delete within 5', 'wait 5000'],
    actions: [
      ...[...STARTED, '0 event Killing', '0 SIGTERM main-0', '5000 SIGKILL main-0'],
      ...['5000 remove main-0', ...removed(5000), '5000 status Failed', 'finalize'],
    ],
  },
  {
    what: 'that is deleted again ends by the shorter grace period',
    steps: ['start', 'ignore SIGTERM', 'delete within 60', 'wait 1000', 'delete within 2', 'wait 2000'],
    actions: [
      ...[...STARTED, '0 event Killing', '0 SIGTERM main-0', '3000 SIGKILL main-0'],
      ...['3000 remove main-0', ...removed(3000), '3000 status Failed', 'finalize'],
    ],
  },
  {
    what: 'that is deleted while Services send it connections waits until they do not',
    steps: ['start', 'traffic new', 'delete within 30', 'wait 1000', 'traffic none', 'wait 1500'],
    actions: [
      ...[...STARTED, '0 event Killing', '1550 SIGTERM main-0', '1550 remove main-0'],
      ...[...removed(1550), '1550 status Failed', 'finalize'],
    ],
  },
  {
    what: 'whose object is gone is stopped without reports',
    steps: ['start', 'object gone'],
    actions: [...STARTED, '0 event Killing', '0 SIGTERM main-0', '0 remove main-0', ...removed(0)],
  },
  {
    what: 'that is deleted before it started leaves nothing behind',
    steps: ['delete within 30'],
    actions: ['0 status Pending', 'finalize'],
  },
  {
    what: 'continues under the next agent with the same processes',
    steps: ['start', 'restart agent'],
    actions: STARTED,
  },
  {
    what: 'whose container ended while no agent ran is restarted by the next one',
    steps: ['start', 'restart agent', 'main exits 1'],
    actions: [...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
  },
  {
    what: 'starts an ephemeral container beside the others, once',
    steps: ['start', 'new ephemeral container', 'debug exits 0', 'wait 60000'],
    actions: [...STARTED, '0 start debug-0', '0 event Started'],
  },
];

describe('a pod', () => {
  for (const { what, spec = {}, steps, actions } of ROWS) {
    test(what, async () => {
      const scene = openScene({ containers: [main], ...spec });
      try {
        for (const step of steps) await scene.carryOut(step);
        await scene.settled();
        assert.deepEqual(scene.node.actions, actions);
      } finally {
        scene.close();
      }
    });
  }
});

interface Scene {
  readonly node: FakeNode;
  carryOut(step: Step): Promise<void>;
  /** Waits until other threads have deleted the files of a pod that leaves. */
  settled(): Promise<void>;
  close(): void;
}

function openScene(spec: PodSpec): Scene {
  const node = fakeNode();
  let traffic: Traffic = 'none';
  const { clock, world } = node;
  const context = {
    ...node.context,
    options: { ...node.context.options, trafficOf: async () => traffic },
  };
  let pod: Pod = { metadata: { uid: 'p', namespace: 'default', name: 'web' }, spec };
  const create = () => new PodWorker(context, pod);
  let worker = create();
  let leaves: 'deleted' | 'gone' | null = null;
  const change = (next: Pod) => {
    pod = next;
    worker.update(pod);
  };
  const perform = async (step: Step): Promise<void> => {
    const [first = '', , last = ''] = step.split(' ');
    if (step === 'start') worker.wake();
    else if (step === 'lose the sandbox') {
      node.loseSandbox();
      worker.wake();
    } else if (step === 'restart agent') {
      worker.release();
      worker = create();
      worker.wake();
    } else if (step === 'object gone') worker.remove();
    else if (step === 'ignore SIGTERM') world.obeysTerm = false;
    else if (step === 'another pod takes the processors') context.resources.adopt(LARGE);
    else if (step === 'network fails') world.attachError = new Error('no addresses left');
    else if (step === 'network works') world.attachError = null;
    else if (step === 'network lacks a port') world.attachError = TAKEN;
    else if (step.startsWith('traffic ')) traffic = step.split(' ')[1] as Traffic;
    else if (step.startsWith('wait ')) await node.advance(Number(step.split(' ')[1]));
    else if (step === 'new ephemeral container')
      change({ ...pod, spec: { ...pod.spec, ...DEBUG } as PodSpec });
    else if (step.startsWith('delete ')) {
      const deletionTimestamp = new Date(clock.now()).toISOString();
      change({
        ...pod,
        metadata: { ...pod.metadata, deletionTimestamp, deletionGracePeriodSeconds: Number(last) },
      });
    } else {
      node.exit(first, Number(last));
      worker.wake();
    }
    await node.settle();
  };
  return {
    node,
    async carryOut(step) {
      if (step.startsWith('delete ')) leaves = 'deleted';
      else if (step === 'object gone') leaves = 'gone';
      await perform(step);
    },
    async settled() {
      if (leaves === null) return;
      const folder = join(context.options.stateDir, 'pods', worker.uid);
      await eventually(() => !existsSync(folder));
      if (leaves === 'deleted') await eventually(() => node.actions.includes('finalize'));
      // For what the worker might do after the deletion.
      await stat(context.options.stateDir);
      await node.settle();
    },
    close() {
      worker.release();
      node.close();
    },
  };
}

const LARGE: Pod = {
  metadata: { uid: 'large' },
  spec: { containers: [{ ...main, resources: { requests: { cpu: '1500m' } } }] },
};
const DEBUG = { ephemeralContainers: [{ name: 'debug', image: 'app' }] };
const TAKEN = new KubeletError('NodePorts', 'another pod has host port 80', { op: 'attach pod' });
