import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ClusterState } from '../cluster/state.ts';
import { CONTROL_PLANE, podRuntimeName, type Supervision } from '../cluster/supervision.ts';
import type { ProcessIdentity } from '../kernel/process-identity.ts';
import { NEW_RECORD, type ProcessRecord } from '../kernel/process-record.ts';
import { processProblems, processTable, viewsOf } from './process-view.ts';

const NOW = Date.parse('2026-01-01T12:00:00Z');
const identity: ProcessIdentity = { pid: 7, startTime: '1' };
const dead: ProcessIdentity = { pid: 8, startTime: '1' };
const runs = (one: ProcessIdentity | null): one is ProcessIdentity => one?.pid === identity.pid;

const running: ProcessRecord = { ...NEW_RECORD, identity, startedAt: NOW - 90_000, startAt: null };
const killed: ProcessRecord = {
  ...NEW_RECORD,
  startedAt: NOW - 90_000,
  restarts: 3,
  failures: 4,
  lastExit: { at: NOW - 1000, reason: 'killed by SIGKILL' },
  startAt: NOW + 5000,
};

// The fields of the state that `status` uses.
const state = {
  name: 'demo',
  mode: 'nftables',
  nodes: [{ name: 'node-1' }],
  publishedPorts: [],
} as unknown as ClusterState;

function problems(supervision: Partial<Supervision>, of = state): string[] {
  const processes = { [podRuntimeName('node-1')]: running, ...supervision.processes };
  const all: Supervision = { supervisor: identity, standby: null, ...supervision, processes };
  return processProblems(viewsOf(of, all, NOW, runs), of).map(({ message }) => message);
}

describe('status names the processes that do not run', () => {
  const rows: { name: string; supervision: Partial<Supervision>; mode?: string; says: string[] }[] = [
    {
      name: 'none: all of them run',
      supervision: { processes: { [CONTROL_PLANE]: running, 'node-1': running } },
      says: [],
    },
    {
      name: 'an agent that waits for its restart',
      supervision: { processes: { [CONTROL_PLANE]: running, 'node-1': killed } },
      says: [
        'node-1: the agent is not running (killed by SIGKILL): connections to Services continue, names are not resolved; restarts in 5 s',
      ],
    },
    {
      name: 'an agent in the userspace mode, whose connections end with it',
      supervision: { processes: { [CONTROL_PLANE]: running, 'node-1': killed } },
      mode: 'userspace',
      says: [
        'node-1: the agent is not running (killed by SIGKILL): new connections to Services fail, names are not resolved; restarts in 5 s',
      ],
    },
    {
      name: 'a pod runtime that waits for its restart',
      supervision: {
        processes: {
          [CONTROL_PLANE]: running,
          'node-1': running,
          [podRuntimeName('node-1')]: { ...killed, lastExit: { at: NOW, reason: 'did not answer for 30 s' } },
        },
      },
      says: [
        'node-1: the pod runtime is not running (did not answer for 30 s): its pods run on, and none is started, probed or ended; restarts in 5 s',
      ],
    },
    {
      name: 'an agent, without its pod runtime, which it starts itself',
      supervision: {
        processes: { [CONTROL_PLANE]: running, 'node-1': killed, [podRuntimeName('node-1')]: killed },
      },
      says: [
        'node-1: the agent is not running (killed by SIGKILL): connections to Services continue, names are not resolved; restarts in 5 s',
      ],
    },
    {
      name: 'the control plane',
      supervision: { processes: { [CONTROL_PLANE]: killed, 'node-1': running } },
      says: ['the control plane is not running (killed by SIGKILL); restarts in 5 s'],
    },
    {
      name: 'the supervisor, and processes that are not restarted without it',
      supervision: {
        supervisor: dead,
        processes: { [CONTROL_PLANE]: { ...running, identity: dead }, 'node-1': running },
      },
      says: [
        'the supervisor is not running: no process is restarted; start it: fairlead up --detach --name demo',
        'the control plane is not running; start it: fairlead up --detach --name demo',
      ],
    },
  ];
  for (const { name, supervision, mode = 'nftables', says } of rows) {
    test(name, () =>
      assert.deepEqual(problems(supervision, { ...state, mode } as unknown as ClusterState), says),
    );
  }
});

test('the table shows uptime, number of restarts and reason of each process', () => {
  const supervision: Supervision = {
    supervisor: identity,
    standby: null,
    processes: {
      [CONTROL_PLANE]: running,
      'node-1': { ...killed, identity, startAt: null },
      [podRuntimeName('node-1')]: running,
    },
  };
  assert.equal(
    processTable(viewsOf(state, supervision, NOW, runs), null),
    [
      'PROCESS             STATUS   FOR  RESTARTS  LAST EXIT',
      'supervisor          Running  -    -         -',
      'control-plane       Running  90s  0         -',
      'node-1              Running  90s  3         killed by SIGKILL at 2026-01-01T11:59:59Z',
      'node-1/pod-runtime  Running  90s  0         -',
      '',
    ].join('\n'),
  );
});
