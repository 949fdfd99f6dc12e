import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Pod } from '../kube/types.ts';
import {
  type ContainerEvent,
  type ContainerPhase,
  type ContainerState,
  containerStep,
  isPodOver,
  NEW_CONTAINER,
  nextContainerState,
  nextPodStep,
  type PodFacts,
  restartCount,
  restartRules,
  wantsRestart,
} from './lifecycle.ts';

const STARTED: ContainerEvent = { type: 'started', id: 'a-0', startedAt: '2026-01-01T00:00:00Z' };
const exited = (exitCode: number): ContainerEvent => ({
  type: 'exited',
  exitCode,
  message: '',
  at: '2026-01-01T00:00:09Z',
});
const RESTARTED: ContainerEvent = { type: 'restarted', backOff: '' };
const REFUSED: ContainerEvent = { type: 'refused', reason: 'ErrImagePull', message: 'no' };
const after = (...events: readonly ContainerEvent[]): ContainerState =>
  events.reduce(nextContainerState, NEW_CONTAINER);
/** A state in a few words. */
const stateText = (state: ContainerState): string => {
  const { phase } = state;
  const what =
    phase.kind === 'waiting'
      ? phase.reason
      : phase.kind === 'running'
        ? phase.id
        : `${phase.termination.reason} ${phase.termination.exitCode}`;
  const last = state.last ? ` after ${state.last.exitCode}` : '';
  return `${phase.kind} ${what}, run ${state.attempt}, ${restartCount(state)} restarts${last}${state.isReplaced ? ', replaced' : ''}`;
};

describe('a container', () => {
  const rows: readonly (readonly [what: string, events: readonly ContainerEvent[], state: string])[] = [
    ['begins by waiting', [], 'waiting ContainerCreating, run 0, 0 restarts'],
    ['waits with the reason of its last try', [REFUSED], 'waiting ErrImagePull, run 0, 0 restarts'],
    ['runs', [REFUSED, STARTED], 'running a-0, run 0, 0 restarts'],
    ['ends well', [STARTED, exited(0)], 'ended Completed 0, run 0, 0 restarts'],
    ['ends badly', [STARTED, exited(3)], 'ended Error 3, run 0, 0 restarts'],
    [
      'keeps its last end while a restart is planned, which does not count yet',
      [STARTED, exited(3), { type: 'restarted', backOff: 'back-off 10s' }],
      'waiting CrashLoopBackOff, run 1, 0 restarts after 3',
    ],
    [
      'counts a restart that has happened',
      [STARTED, exited(3), RESTARTED, { ...STARTED, id: 'a-1' }],
      'running a-1, run 1, 1 restarts after 3',
    ],
    [
      'runs on while it is being replaced',
      [STARTED, { type: 'replaced' }],
      'running a-0, run 0, 0 restarts, replaced',
    ],
    [
      'is new after its replacement',
      [STARTED, { type: 'replaced' }, exited(143), RESTARTED],
      'waiting ContainerCreating, run 1, 0 restarts after 143',
    ],
    ['does not start twice', [STARTED, { ...STARTED, id: 'b' }], 'running a-0, run 0, 0 restarts'],
    ['is not refused while it runs', [STARTED, REFUSED], 'running a-0, run 0, 0 restarts'],
    ['does not end before it runs', [exited(1)], 'waiting ContainerCreating, run 0, 0 restarts'],
    ['does not end twice', [STARTED, exited(0), exited(1)], 'ended Completed 0, run 0, 0 restarts'],
    ['is not restarted while it runs', [STARTED, RESTARTED], 'running a-0, run 0, 0 restarts'],
    [
      'is not replaced before it runs',
      [{ type: 'replaced' }],
      'waiting ContainerCreating, run 0, 0 restarts',
    ],
  ];
  for (const [what, events, state] of rows)
    test(what, () => assert.equal(stateText(after(...events)), state));
});

describe("a container's next step", () => {
  const policy = (name: string) => ({ policy: name, rules: [] });
  const rows = [
    ['waiting', after(), 'Never', false, 'start'],
    ['running', after(STARTED), 'Always', false, 'none'],
    ['running, with a changed definition', after(STARTED), 'Never', true, 'replace'],
    ['being replaced', after(STARTED, { type: 'replaced' }), 'Never', true, 'none'],
    ['ended well, Always', after(STARTED, exited(0)), 'Always', false, 'restart'],
    ['ended well, OnFailure', after(STARTED, exited(0)), 'OnFailure', false, 'none'],
    ['ended badly, OnFailure', after(STARTED, exited(1)), 'OnFailure', false, 'restart'],
    ['ended badly, Never', after(STARTED, exited(1)), 'Never', false, 'none'],
    [
      'ended for a replacement, Never',
      after(STARTED, { type: 'replaced' }, exited(143)),
      'Never',
      false,
      'restart',
    ],
  ] as const;
  for (const [what, state, name, hasChanged, step] of rows) {
    test(`${what}: ${step}`, () => assert.equal(containerStep(state, policy(name), hasChanged), step));
  }
});

describe('restart rules', () => {
  const rule = (operator: string, ...values: number[]) => ({
    action: 'Restart',
    exitCodes: { operator, values },
  });
  const rows = [
    ['a listed exit code restarts', 'Never', [rule('In', 42)], 42, true],
    ['another one does not', 'Never', [rule('In', 42)], 1, false],
    ['all but the listed restart', 'Never', [rule('NotIn', 0)], 1, true],
    ['the policy decides where no rule fits', 'OnFailure', [rule('In', 42)], 1, true],
  ] as const;
  for (const [what, policy, rules, code, restarts] of rows) {
    test(what, () => assert.equal(wantsRestart({ policy, rules }, code), restarts));
  }
  const pod = {
    spec: {
      restartPolicy: 'Always',
      initContainers: [{ name: 'init' }, { name: 'sidecar', restartPolicy: 'Always' }],
      containers: [{ name: 'main' }, { name: 'once', restartPolicy: 'Never' }],
      ephemeralContainers: [{ name: 'debug' }],
    },
  } as unknown as Pod;
  for (const [name, policy] of [
    ['init', 'OnFailure'],
    ['sidecar', 'Always'],
    ['main', 'Always'],
    ['once', 'Never'],
    ['debug', 'Never'],
  ] as const) {
    test(`in a pod that restarts always, ${name} restarts ${policy}`, () => {
      const { initContainers = [], containers = [], ephemeralContainers = [] } = pod.spec ?? {};
      const container = [...initContainers, ...containers, ...ephemeralContainers].find(
        (one) => one.name === name,
      );
      assert.ok(container);
      assert.equal(restartRules(pod, container).policy, policy);
    });
  }
});

describe('a pod is over', () => {
  const ended = (exitCode: number): ContainerPhase => after(STARTED, exited(exitCode)).phase;
  const running = after(STARTED).phase;
  const waiting = NEW_CONTAINER.phase;
  const rows: readonly (readonly [
    what: string,
    policy: string,
    init: readonly ContainerPhase[],
    main: readonly ContainerPhase[],
    isOver: boolean,
  ])[] = [
    ['when all have ended, Never', 'Never', [], [ended(0), ended(1)], true],
    ['not while one runs', 'Never', [], [ended(0), running], false],
    ['not when one is to restart', 'OnFailure', [], [ended(0), ended(1)], false],
    ['when all have ended well, OnFailure', 'OnFailure', [], [ended(0)], true],
    ['never, with Always', 'Always', [], [ended(0)], false],
    ['when an init container has failed for good', 'Never', [ended(1)], [waiting], true],
    ['not when an init container is to restart', 'OnFailure', [ended(1)], [waiting], false],
    ['not when an init container has succeeded', 'Never', [ended(0)], [waiting], false],
  ];
  for (const [what, restartPolicy, init, main, isOver] of rows) {
    test(what, () => {
      const named = (prefix: string, phases: readonly ContainerPhase[]) =>
        phases.map((_, i) => ({ name: `${prefix}${i}` }));
      const pod = {
        spec: { restartPolicy, initContainers: named('init', init), containers: named('main', main) },
      } as unknown as Pod;
      const phases = new Map<string, ContainerPhase>([
        ...init.map((phase, i) => [`init${i}`, phase] as const),
        ...main.map((phase, i) => [`main${i}`, phase] as const),
      ]);
      assert.equal(
        isPodOver(pod, ({ name }) => ({ phase: phases.get(name) ?? waiting, isReplaced: false })),
        isOver,
      );
    });
  }
});

test('a pod whose only container has ended for its replacement is not over', () => {
  const pod = { spec: { restartPolicy: 'Never', containers: [{ name: 'main' }] } } as unknown as Pod;
  const state = after(STARTED, { type: 'replaced' }, exited(143));
  assert.equal(
    isPodOver(pod, () => state),
    false,
  );
});

describe("a pod's next step", () => {
  const NEW: PodFacts = {
    isLeaving: false,
    isFinished: false,
    isRefused: false,
    isAdmitted: false,
    mustFail: false,
    isOver: false,
    hasSandbox: false,
    isSandboxAlive: false,
    hasAddresses: false,
    hasFiles: false,
  };
  const ADMITTED = { ...NEW, isAdmitted: true };
  const RUNNING = { ...ADMITTED, hasSandbox: true, isSandboxAlive: true, hasAddresses: true, hasFiles: true };
  const rows = [
    ['new', NEW, 'admit'],
    ['with reserved resources', ADMITTED, 'create-sandbox'],
    ['with namespaces', { ...ADMITTED, hasSandbox: true, isSandboxAlive: true }, 'attach-network'],
    ['with addresses', { ...RUNNING, hasFiles: false }, 'prepare-files'],
    ['with files', RUNNING, 'run-containers'],
    ['whose pause process has died', { ...RUNNING, isSandboxAlive: false }, 'create-sandbox'],
    ['whose containers have ended', { ...RUNNING, isOver: true }, 'retire'],
    ['retired', { ...NEW, isOver: true }, 'rest'],
    ['past its deadline', { ...RUNNING, mustFail: true }, 'fail'],
    ['past its deadline, never started', { ...NEW, mustFail: true }, 'fail'],
    ['failed', { ...NEW, isFinished: true, mustFail: true }, 'rest'],
    ['with an unknown field', { ...NEW, isRefused: true }, 'refuse'],
    ['with an unknown field, past its deadline', { ...NEW, isRefused: true, mustFail: true }, 'fail'],
    ['being deleted', { ...RUNNING, isLeaving: true, mustFail: true }, 'terminate'],
    ['being deleted, after its failure', { ...NEW, isLeaving: true, isFinished: true }, 'terminate'],
  ] as const;
  for (const [what, facts, step] of rows) {
    test(`${what}: ${step}`, () => assert.equal(nextPodStep(facts), step));
  }
});
