import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Container, Pod } from '../kube/types.ts';
import type { Launch } from './container-config.ts';
import { ContainerRunner } from './container-runner.ts';
import { GracePeriod } from './grace-period.ts';
import { KubeletError } from './kubelet-error.ts';
import { fakeNode } from './testing/fake-node.ts';

type PodSpec = NonNullable<Pod['spec']>;

/** What happens to a container; `ensure` is what its pod's worker calls after each event. */
type Step =
  | 'ensure'
  | 'retry image'
  | 'abandon'
  | 'dispose'
  | 'restart agent'
  | `exit ${number}`
  | 'vanish'
  | 'lose monitor'
  | `stop within ${number}`
  | `wait ${number}`
  | `image ${'present' | 'missing' | 'invalid'}`
  | `pulls ${'fail' | 'succeed'}`
  | `starts ${'fail' | 'succeed'}`
  | `commands exit ${number}`
  | 'ignore SIGTERM'
  | `new image ${string}`
  | `new limit ${string}`;

interface Row {
  readonly what: string;
  readonly container?: Partial<Container>;
  readonly pod?: Partial<PodSpec>;
  readonly steps: readonly Step[];
  /** The actions with their time in milliseconds; calls of the worker are left out. */
  readonly actions: readonly string[];
  readonly state: string;
}

const ONCE = { restartPolicy: 'Never' } as const;
const STARTED = ['0 start main-0', '0 event Started'];

const ROWS: readonly Row[] = [
  {
    what: 'starts, and is ready without probes',
    steps: ['ensure'],
    actions: STARTED,
    state: 'running ready',
  },
  { what: 'starts once', steps: ['ensure', 'ensure'], actions: STARTED, state: 'running ready' },
  {
    what: 'restarts at once after its first end',
    steps: ['ensure', 'exit 0', 'ensure'],
    actions: [...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
    state: 'running ready, 1 restarts after 0',
  },
  {
    what: 'restarts 10 s after its second end, and 20 s after its third',
    steps: [
      ...([
        'ensure',
        'exit 1',
        'ensure',
        'exit 2',
        'ensure',
        'wait 9950',
        'ensure',
        'wait 50',
        'ensure',
      ] as const),
      ...(['exit 3', 'ensure', 'wait 19950', 'ensure', 'wait 50', 'ensure'] as const),
    ],
    actions: [
      ...[...STARTED, '0 remove main-0', '0 start main-1', '0 event Started', '0 event BackOff'],
      ...['10000 remove main-1', '10000 start main-2', '10000 event Started', '10000 event BackOff'],
      ...['30000 remove main-2', '30000 start main-3', '30000 event Started'],
    ],
    state: 'running ready, 3 restarts after 3',
  },
  {
    what: 'reports a back-off while it lasts',
    steps: ['ensure', 'exit 1', 'ensure', 'exit 2', 'ensure'],
    actions: [...STARTED, '0 remove main-0', '0 start main-1', '0 event Started', '0 event BackOff'],
    state: 'waiting CrashLoopBackOff, 1 restarts after 2',
  },
  {
    what: 'forgets the back-off after a run of more than ten minutes',
    steps: ['ensure', 'exit 1', 'ensure', 'wait 600050', 'exit 2', 'ensure'],
    actions: [
      ...[...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
      ...['600050 remove main-1', '600050 start main-2', '600050 event Started'],
    ],
    state: 'running ready, 2 restarts after 2',
  },
  {
    what: 'does not restart with restartPolicy Never',
    pod: ONCE,
    steps: ['ensure', 'exit 1', 'ensure', 'wait 60000', 'ensure'],
    actions: STARTED,
    state: 'ended Error 1',
  },
  {
    what: 'does not restart after success with OnFailure',
    pod: { restartPolicy: 'OnFailure' },
    steps: ['ensure', 'exit 0', 'ensure'],
    actions: STARTED,
    state: 'ended Completed 0',
  },
  {
    what: 'restarts after a failure with OnFailure',
    pod: { restartPolicy: 'OnFailure' },
    steps: ['ensure', 'exit 1', 'ensure'],
    actions: [...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
    state: 'running ready, 1 restarts after 1',
  },
  {
    what: 'whose process disappears waits two seconds for its exit code',
    pod: ONCE,
    steps: ['ensure', 'vanish', 'ensure', 'wait 1950', 'ensure', 'wait 50', 'ensure'],
    actions: STARTED,
    state: 'ended Error 137',
  },
  {
    what: 'whose process and monitor are gone does not wait for an exit code',
    steps: ['ensure', 'lose monitor', 'vanish', 'ensure'],
    actions: [...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
    state: 'running ready, 1 restarts after 137',
  },
  {
    what: 'that ended with its node, as after a stop of the whole cluster, starts again at once',
    steps: ['ensure', 'vanish', 'lose monitor', 'restart agent', 'ensure'],
    actions: [...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
    state: 'running ready, 1 restarts after 137',
  },
  {
    what: 'takes an exit code that appears late',
    pod: ONCE,
    steps: ['ensure', 'vanish', 'ensure', 'wait 1000', 'exit 3', 'ensure'],
    actions: STARTED,
    state: 'ended Error 3',
  },
  {
    what: 'that cannot be started is tried again after 1 s, then 2 s',
    steps: [
      'starts fail',
      'ensure',
      'wait 950',
      'ensure',
      'wait 50',
      'ensure',
      'starts succeed',
      'wait 2000',
      'ensure',
    ],
    actions: [
      ...['0 start main-0', '0 event Failed', '1000 start main-0', '1000 event Failed'],
      ...['3000 start main-0', '3000 event Started'],
    ],
    state: 'running ready',
  },
  {
    what: 'says why it cannot be started',
    steps: ['starts fail', 'ensure'],
    actions: ['0 start main-0', '0 event Failed'],
    state: 'waiting CreateContainerConfigError',
  },
  {
    what: 'pulls a missing image once, then starts',
    steps: ['image missing', 'ensure', 'ensure'],
    actions: ['0 event Pulling', '0 pull', '0 event Pulled', ...STARTED],
    state: 'running ready',
  },
  {
    what: 'reports a failed pull, and tries again after 1 s',
    steps: [
      'image missing',
      'pulls fail',
      'ensure',
      'ensure',
      'pulls succeed',
      'wait 1000',
      'ensure',
      'ensure',
    ],
    actions: [
      ...['0 event Pulling', '0 pull', '0 event Failed'],
      ...['1000 event Pulling', '1000 pull', '1000 event Pulled', '1000 start main-0', '1000 event Started'],
    ],
    state: 'running ready',
  },
  {
    what: 'reports a back-off after the second failed pull',
    steps: ['image missing', 'pulls fail', 'ensure', 'wait 1000', 'ensure'],
    actions: [
      '0 event Pulling',
      '0 pull',
      '0 event Failed',
      '1000 event Pulling',
      '1000 pull',
      '1000 event Failed',
    ],
    state: 'waiting ImagePullBackOff',
  },
  {
    what: 'starts at once when its image has been stored',
    steps: ['image missing', 'pulls fail', 'ensure', 'image present', 'retry image', 'ensure'],
    actions: ['0 event Pulling', '0 pull', '0 event Failed', ...STARTED],
    state: 'running ready',
  },
  {
    what: 'does not pull an image with an invalid name',
    steps: ['image invalid', 'ensure'],
    actions: ['0 event Failed'],
    state: 'waiting ImageInspectError',
  },
  {
    what: 'is stopped by SIGTERM',
    pod: ONCE,
    steps: ['ensure', 'stop within 5000', 'wait 250'],
    actions: [...STARTED, '0 SIGTERM main-0'],
    state: 'ended Error 143',
  },
  {
    what: 'is killed at the deadline of its stop',
    pod: ONCE,
    steps: ['ensure', 'ignore SIGTERM', 'stop within 5000', 'wait 6000'],
    actions: [...STARTED, '0 SIGTERM main-0', '5000 SIGKILL main-0'],
    state: 'ended Error 137',
  },
  {
    what: 'runs its preStop hook before SIGTERM',
    container: { lifecycle: { preStop: { exec: { command: ['drain'] } } } },
    pod: ONCE,
    steps: ['ensure', 'stop within 5000', 'wait 250'],
    actions: [...STARTED, '0 exec drain', '0 SIGTERM main-0'],
    state: 'ended Error 143',
  },
  {
    what: 'reports a failed preStop hook, and stops',
    container: { lifecycle: { preStop: { exec: { command: ['drain'] } } } },
    pod: ONCE,
    steps: ['ensure', 'commands exit 1', 'stop within 5000', 'wait 250'],
    actions: [...STARTED, '0 exec drain', '0 event FailedPreStopHook', '0 SIGTERM main-0'],
    state: 'ended Error 143',
  },
  {
    what: 'is killed if its postStart hook fails',
    container: { lifecycle: { postStart: { exec: { command: ['init'] } } } },
    pod: ONCE,
    steps: ['commands exit 1', 'ensure', 'ensure'],
    actions: [...STARTED, '0 exec init', '0 event FailedPostStartHook', '0 SIGKILL main-0'],
    state: 'ended Error 137',
  },
  {
    what: 'is ready when its readiness probe succeeds',
    container: { readinessProbe: { exec: { command: ['ready'] } } },
    steps: ['ensure', 'wait 50'],
    actions: [...STARTED, '0 exec ready'],
    state: 'running ready',
  },
  {
    what: 'is not ready while its readiness probe fails',
    container: { readinessProbe: { exec: { command: ['ready'] }, initialDelaySeconds: 1 } },
    steps: ['commands exit 1', 'ensure', 'wait 1000'],
    actions: [...STARTED, '1000 exec ready', '1000 event Unhealthy'],
    state: 'running',
  },
  {
    what: 'is stopped when its liveness probe fails, and restarts',
    container: {
      livenessProbe: { exec: { command: ['alive'] }, initialDelaySeconds: 1, failureThreshold: 1 },
    },
    steps: ['commands exit 1', 'ensure', 'wait 1250', 'ensure'],
    actions: [
      ...[...STARTED, '1000 exec alive', '1000 event Unhealthy', '1000 event Killing', '1000 SIGTERM main-0'],
      ...['1250 remove main-0', '1250 start main-1', '1250 event Started'],
    ],
    state: 'running ready, 1 restarts after 143',
  },
  {
    what: 'that is being stopped is not probed for liveness',
    container: { livenessProbe: { exec: { command: ['alive'] }, initialDelaySeconds: 1 } },
    pod: ONCE,
    steps: ['ensure', 'ignore SIGTERM', 'commands exit 1', 'stop within 5000', 'wait 5000'],
    actions: [...STARTED, '0 SIGTERM main-0', '5000 SIGKILL main-0'],
    state: 'ended Error 137',
  },
  {
    what: 'is stopped and restarted when its image changes, whatever its policy',
    pod: ONCE,
    steps: ['ensure', 'new image other', 'ensure', 'wait 250', 'ensure'],
    actions: [
      ...[...STARTED, '0 event Killing', '0 SIGTERM main-0'],
      ...['250 remove main-0', '250 start main-1', '250 event Started'],
    ],
    state: 'running ready, 1 restarts after 143',
  },
  {
    what: 'with a changed image restarts at once, even after failures',
    steps: ['ensure', 'exit 1', 'ensure', 'new image other', 'ensure', 'wait 250', 'ensure'],
    actions: [
      ...[...STARTED, '0 remove main-0', '0 start main-1', '0 event Started', '0 event Killing'],
      ...['0 SIGTERM main-1', '250 remove main-1', '250 start main-2', '250 event Started'],
    ],
    state: 'running ready, 2 restarts after 143',
  },
  {
    what: 'is resized while it runs',
    steps: ['ensure', 'new limit 1', 'ensure', 'ensure'],
    actions: [...STARTED, '0 resize main to {"cpu":"1"}', '0 event ResizeCompleted'],
    state: 'running ready',
  },
  {
    what: 'is killed with its sandbox',
    pod: ONCE,
    steps: ['ensure', 'abandon', 'wait 50'],
    actions: [...STARTED, '0 SIGKILL main-0'],
    state: 'ended Error 137',
  },
  {
    what: 'keeps running when the agent is replaced',
    steps: ['ensure', 'restart agent', 'ensure'],
    actions: STARTED,
    state: 'running ready',
  },
  {
    what: 'that ended while no agent ran has ended for the next one',
    pod: ONCE,
    steps: ['ensure', 'restart agent', 'ensure', 'exit 4', 'restart agent', 'ensure'],
    actions: STARTED,
    state: 'ended Error 4',
  },
  {
    what: 'keeps its number of restarts when the agent is replaced',
    steps: ['ensure', 'exit 1', 'ensure', 'restart agent', 'exit 2', 'ensure'],
    actions: [
      ...[...STARTED, '0 remove main-0', '0 start main-1', '0 event Started'],
      ...['0 remove main-1', '0 start main-2', '0 event Started'],
    ],
    state: 'running ready, 2 restarts after 2',
  },
  {
    what: 'leaves no run behind',
    pod: ONCE,
    steps: ['ensure', 'exit 0', 'ensure', 'dispose'],
    actions: [...STARTED, '0 remove main-0'],
    state: 'ended Completed 0',
  },
];

describe('a container', () => {
  for (const row of ROWS) {
    test(row.what, async () => {
      const { actions, state } = await carryOut(row);
      assert.deepEqual({ actions, state }, { actions: row.actions, state: row.state });
    });
  }
});

async function carryOut(row: Row): Promise<{ actions: string[]; state: string }> {
  const node = fakeNode();
  const { world, clock } = node;
  let container: Container = { name: 'main', image: 'app', ...row.container };
  const pod = (): Pod => ({
    metadata: { uid: 'p', namespace: 'default', name: 'web' },
    spec: { ...row.pod, containers: [container] },
  });
  const create = () =>
    new ContainerRunner(
      {
        ...node.context,
        ...{ pod, address: () => '10.244.0.5', changed: () => {}, grace: new GracePeriod(clock) },
        quiet: () => Promise.resolve(),
      },
      container,
      `${node.context.options.stateDir}/pods/p`,
    );
  let runner = create();
  const step = async (one: Step): Promise<void> => {
    const last = one.split(' ').at(-1) ?? '';
    if (one === 'ensure') await runner.ensure({ pod: pod(), container } as Launch);
    else if (one === 'retry image') runner.retryImage();
    else if (one === 'abandon') void runner.abandon();
    else if (one === 'dispose') await runner.dispose();
    else if (one === 'restart agent') {
      runner.release();
      runner = create();
    } else if (one === 'vanish') node.exit('main', null);
    else if (one === 'lose monitor') node.loseMonitors();
    else if (one === 'ignore SIGTERM') world.obeysTerm = false;
    else if (one.startsWith('exit ')) node.exit('main', Number(last));
    else if (one.startsWith('stop ')) void runner.stop(clock.now() + Number(last), '10.244.0.5');
    else if (one.startsWith('wait ')) await node.advance(Number(last));
    else if (one.startsWith('image ')) world.image = last as typeof world.image;
    else if (one.startsWith('pulls ')) world.pullError = last === 'fail' ? new Error('no such image') : null;
    else if (one.startsWith('starts ')) world.startError = last === 'fail' ? NO_KEY : null;
    else if (one.startsWith('commands ')) world.execCode = Number(last);
    else if (one.startsWith('new image ')) container = { ...container, image: last };
    else container = { ...container, resources: { limits: { cpu: last } } };
    await node.settle();
  };
  try {
    for (const one of row.steps) await step(one);
    return { actions: node.actions, state: stateOf(runner) };
  } finally {
    runner.release();
    node.close();
  }
}

const NO_KEY = new KubeletError('CreateContainerConfigError', 'the secret has no such key', {
  op: 'start container',
});

/** A state in a few words. */
function stateOf({ view }: ContainerRunner): string {
  const { phase, ready, restarts, last } = view;
  const reason =
    phase.kind === 'waiting'
      ? ` ${phase.reason}`
      : phase.kind === 'ended'
        ? ` ${phase.termination.reason} ${phase.termination.exitCode}`
        : '';
  const before = last ? `, ${restarts} restarts after ${last.exitCode}` : '';
  return `${phase.kind}${reason}${ready ? ' ready' : ''}${before}`;
}
