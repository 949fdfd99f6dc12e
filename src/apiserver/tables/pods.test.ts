import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CREATED, row } from './testing/row.ts';

const running = (extra: object = {}) => ({
  name: 'a',
  ready: true,
  restartCount: 0,
  state: { running: {} },
  ...extra,
});
const pod = (spec: object, status: object, metadata: object = {}) => ({
  metadata: { name: 'x', creationTimestamp: CREATED, ...metadata },
  spec: { containers: [{ name: 'a' }], ...spec },
  status,
});
const waiting = (reason: string) => ({
  name: 'a',
  ready: false,
  restartCount: 0,
  state: { waiting: { reason } },
});
const ended = (exitCode: number, extra: object = {}) => ({
  name: 'a',
  ready: false,
  restartCount: 0,
  state: { terminated: { exitCode, ...extra } },
});

test('pods show what is wrong', async (t) => {
  const inits = { initContainers: [{ name: 'i' }, { name: 'j' }] };
  const sidecar = { initContainers: [{ name: 'i', restartPolicy: 'Always' }] };
  const completed = ended(0, { reason: 'Completed' });
  const rows: [behaviour: string, pod: object, expected: string][] = [
    ['not yet scheduled', pod({}, { phase: 'Pending' }), '0/1 ¦ Pending ¦ 0'],
    ['running', pod({}, { phase: 'Running', containerStatuses: [running()] }), '1/1 ¦ Running ¦ 0'],
    [
      'starting',
      pod({}, { phase: 'Pending', containerStatuses: [waiting('ContainerCreating')] }),
      '0/1 ¦ ContainerCreating ¦ 0',
    ],
    [
      'restarted a while ago',
      pod(
        {},
        {
          phase: 'Running',
          containerStatuses: [
            running({ restartCount: 2, lastState: { terminated: { finishedAt: '2024-05-06T11:55:00Z' } } }),
          ],
        },
      ),
      '1/1 ¦ Running ¦ 2 (5m ago)',
    ],
    [
      'crashing repeatedly',
      pod({}, { phase: 'Running', containerStatuses: [{ ...waiting('CrashLoopBackOff'), restartCount: 4 }] }),
      '0/1 ¦ CrashLoopBackOff ¦ 4',
    ],
    ['done', pod({}, { phase: 'Succeeded', containerStatuses: [completed] }), '0/1 ¦ Completed ¦ 0'],
    [
      'failed',
      pod({}, { phase: 'Failed', containerStatuses: [ended(1, { reason: 'Error' })] }),
      '0/1 ¦ Error ¦ 0',
    ],
    [
      'failed without a reason',
      pod({}, { phase: 'Failed', containerStatuses: [ended(3)] }),
      '0/1 ¦ ExitCode:3 ¦ 0',
    ],
    [
      'killed',
      pod({}, { phase: 'Failed', containerStatuses: [ended(137, { signal: 9 })] }),
      '0/1 ¦ Signal:9 ¦ 0',
    ],
    ['evicted', pod({}, { phase: 'Failed', reason: 'Evicted' }), '0/1 ¦ Evicted ¦ 0'],
    [
      'one of two done, pod ready',
      pod(
        { containers: [{ name: 'a' }, { name: 'b' }] },
        {
          phase: 'Running',
          conditions: [{ type: 'Ready', status: 'True' }],
          containerStatuses: [completed, running({ name: 'b' })],
        },
      ),
      '1/2 ¦ Running ¦ 0',
    ],
    [
      'one of two done, pod not ready',
      pod(
        { containers: [{ name: 'a' }, { name: 'b' }] },
        { phase: 'Running', containerStatuses: [completed, running({ name: 'b' })] },
      ),
      '1/2 ¦ NotReady ¦ 0',
    ],
    [
      'first init container still running',
      pod(inits, { phase: 'Pending', initContainerStatuses: [running({ name: 'i', ready: false })] }),
      '0/1 ¦ Init:0/2 ¦ 0',
    ],
    [
      'second init container starting',
      pod(inits, {
        phase: 'Pending',
        initContainerStatuses: [
          { ...ended(0), name: 'i' },
          { ...waiting('PodInitializing'), name: 'j' },
        ],
      }),
      '0/1 ¦ Init:1/2 ¦ 0',
    ],
    [
      'init container fails and is retried',
      pod(inits, {
        phase: 'Pending',
        initContainerStatuses: [{ ...waiting('CrashLoopBackOff'), name: 'i', restartCount: 3 }],
      }),
      '0/1 ¦ Init:CrashLoopBackOff ¦ 3',
    ],
    [
      'init container failed',
      pod(inits, { phase: 'Failed', initContainerStatuses: [{ ...ended(2), name: 'i' }] }),
      '0/1 ¦ Init:ExitCode:2 ¦ 0',
    ],
    [
      'a sidecar counts as a container',
      pod(sidecar, {
        phase: 'Running',
        initContainerStatuses: [running({ name: 'i', started: true, restartCount: 1 })],
        containerStatuses: [running()],
      }),
      '2/2 ¦ Running ¦ 1',
    ],
    [
      'being deleted',
      pod({}, { phase: 'Running', containerStatuses: [running()] }, { deletionTimestamp: CREATED }),
      '1/1 ¦ Terminating ¦ 0',
    ],
    [
      'deleted after completion',
      pod({}, { phase: 'Succeeded', containerStatuses: [completed] }, { deletionTimestamp: CREATED }),
      '0/1 ¦ Completed ¦ 0',
    ],
    [
      'on an unreachable node',
      pod({}, { phase: 'Running', reason: 'NodeLost' }, { deletionTimestamp: CREATED }),
      '0/1 ¦ Unknown ¦ 0',
    ],
    [
      'blocked by a scheduling gate',
      pod(
        {},
        {
          phase: 'Pending',
          conditions: [{ type: 'PodScheduled', status: 'False', reason: 'SchedulingGated' }],
        },
      ),
      '0/1 ¦ SchedulingGated ¦ 0',
    ],
  ];
  for (const [behaviour, object, expected] of rows) {
    await t.test(behaviour, () => assert.equal(row('', 'Pod', object), `x ¦ ${expected} ¦ 5m`));
  }
  await t.test('wide: address, node and readiness gates', () => {
    const object = pod(
      { nodeName: 'n1', readinessGates: [{ conditionType: 'lb' }, { conditionType: 'db' }] },
      { phase: 'Running', podIPs: [{ ip: '10.0.0.1' }], conditions: [{ type: 'lb', status: 'True' }] },
    );
    assert.equal(row('', 'Pod', object, true), 'x ¦ 0/1 ¦ Running ¦ 0 ¦ 5m ¦ 10.0.0.1 ¦ n1 ¦ <none> ¦ 1/2');
  });
});
