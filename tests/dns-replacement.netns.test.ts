import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { ASK_NAME, type Asked } from './testing/name-asker.ts';

/**
 * While an agent is replaced, no query of its node's pods is lost: each datagram is sent once and answered. An
 * agent that is killed loses those that it has read and not answered.
 */

/** IPVS is not in every kernel. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

const CLIENT = `
apiVersion: v1
kind: Pod
metadata: {name: asker}
spec:
  nodeSelector: {kubernetes.io/hostname: node-1}
  terminationGracePeriodSeconds: 0
  containers: [{name: shell, image: fairlead, command: [sleep, infinity]}]
`;

let cluster: Cluster;
before(async () => {
  cluster = await startCluster(['--nodes', '3', '-f', HELLO]);
  await cluster.apply(CLIENT);
  await cluster.ask('wait', 'pod/asker', '--for=condition=Ready', '--timeout=120s');
});
after(() => cluster?.down());

async function ask(seconds: number): Promise<Asked> {
  const words = ['hello.default.svc.cluster.local', String(seconds)];
  const { out, error } = await cluster.fairlead(
    'exec',
    'asker',
    '--',
    '/opt/fairlead/node',
    '-e',
    ASK_NAME,
    ...words,
  );
  if (out === '') throw new Error(`queries of the pod: ${error}`);
  return JSON.parse(out) as Asked;
}

const agentOf = (name: string): number => {
  const pid = cluster.state().nodes.find((node) => node.name === name)?.agent?.pid;
  assert.ok(pid);
  return pid;
};
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const healthy = () =>
  eventually(
    () => cluster.fairlead('status'),
    ({ status }) => status === 0,
    60_000,
  );

/**
 * Signals the agent of node-1 repeatedly, each time after it is ready again. The supervisor delays each restart twice as long
 * as the one before.
 */
async function replace(signal: NodeJS.Signals, times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    await pause(500);
    const before = agentOf('node-1');
    process.kill(before, signal);
    await eventually(
      () => cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent?.pid ?? before,
      (pid) => pid !== before,
      30_000,
    );
    await healthy();
  }
}

/** `maxLost`: how many queries may be without an answer. */
function assertAnswered(asked: Asked, maxLost = 0): void {
  assert.ok(asked.sent > 500, `${asked.sent} queries`);
  assert.ok(asked.lost <= maxLost, `${asked.lost} of ${asked.sent} queries lost`);
  assert.deepEqual(
    { ...asked, slowest: 0 },
    { ...asked, rcodes: { 0: asked.sent - asked.lost }, failures: {}, slowest: 0 },
  );
}

/** A killed process takes the queries with it that it has read and not answered; the asker sends one in 5 ms. */
const MAX_LOST_PER_KILL = 5;
const REPLACEMENTS = 2;

describe('queries of pods while the agent of their node is replaced', () => {
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    test(`${signal}, and the supervisor starts the next agent: queries wait in the sockets that it holds`, async (t) => {
      const asking = ask(10);
      await replace(signal, REPLACEMENTS);
      const asked = await asking;
      t.diagnostic(JSON.stringify(asked));
      assertAnswered(asked, signal === 'SIGKILL' ? REPLACEMENTS * MAX_LOST_PER_KILL : 0);
    });
  }

  for (const mode of MODES) {
    test(`SIGTERM without a supervisor, ${mode}: other nodes answer, until an agent runs again`, async (t) => {
      if (mode !== MODES[0]) assert.equal((await cluster.fairlead('mode', mode)).status, 0);
      await cluster.stopSupervisor();
      const asking = ask(8);
      try {
        await pause(500);
        process.kill(agentOf('node-1'), 'SIGTERM');
        await pause(3000);
      } finally {
        const up = await cluster.fairlead('up', '--detach');
        assert.equal(up.status, 0, up.error);
      }
      await healthy();
      const asked = await asking;
      t.diagnostic(JSON.stringify(asked));
      assertAnswered(asked);
    });
  }

  test('SIGKILL without a supervisor: other nodes answer, also through a node whose agent has ended too', async () => {
    await cluster.stopSupervisor();
    try {
      for (const name of ['node-1', 'node-2']) {
        const pid = agentOf(name);
        process.kill(pid, 'SIGKILL');
        await eventually(
          () => isRunning(pid),
          (running) => !running,
          10_000,
        );
      }
      assertAnswered(await ask(5));
    } finally {
      const up = await cluster.fairlead('up', '--detach');
      assert.equal(up.status, 0, up.error);
    }
  });
});

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
