import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { availableModes } from '../../src/agent/dataplanes.ts';
import { CONTROL_PLANE } from '../../src/cluster/supervision.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { nodeNetns } from '../../src/network/topology.ts';
import { type Cluster, HELLO, reserveCluster, startCluster } from '../testing/cluster.ts';
import { type Experience, underLoad } from './continuous-load.ts';

/** Servers that stop at once on SIGTERM, or `preStop` seconds later if that is not null. */
const servers = (name: string, preStop: number | null) => `
apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}}
spec:
  replicas: 3
  selector: {matchLabels: {app: ${name}}}
  template:
    metadata: {labels: {app: ${name}}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: echo
        image: fairlead
        command: [fairlead, echo, --port=8080]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
        ${preStop === null ? '' : `lifecycle: {preStop: {sleep: {seconds: ${preStop}}}}`}
---
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec: {selector: {app: ${name}}, ports: [{port: 80, targetPort: 8080}]}
`;

interface Chaos {
  readonly what: string;
  readonly service: 'plain' | 'graceful';
  readonly act: () => Promise<unknown>;
  /** Modes in which requests may fail, with the reason. */
  readonly mayFail: Readonly<Record<string, string>>;
}

let cluster: Cluster;
let disk = '';
before(async () => {
  const reserved = reserveCluster();
  disk = reserved.stateRoot;
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=512m', 'state', disk]);
  cluster = await startCluster(['--nodes', '2', '-f', HELLO], reserved);
  await cluster.apply(`${servers('plain', null)}---${servers('graceful', 2)}`);
  for (const name of ['plain', 'graceful']) await rolledOut(name);
});
after(async () => {
  await cluster?.fairlead('down');
  execFileSync('umount', [disk]);
  rmSync(disk, { recursive: true, force: true });
});

const rolledOut = (name: string) => cluster.ask('rollout', 'status', `deployment/${name}`, '--timeout=60s');
const rollOut = (name: string, times: number) => async () => {
  for (let i = 0; i < times; i++) {
    await cluster.ask('rollout', 'restart', `deployment/${name}`);
    await rolledOut(name);
  }
};
const kill = (name: string) => async () => {
  const identity = cluster.supervision().processes[name]?.identity;
  assert.ok(identity);
  process.kill(identity.pid, 'SIGKILL');
  await eventually(
    () => cluster.supervision().processes[name]?.identity,
    (now) => now !== null && now?.pid !== identity.pid,
  );
  await eventually(
    () => cluster.fairlead('status'),
    ({ status }) => status === 0,
    60_000,
  );
};

const CONNECTIONS_END = 'the agent itself carries connections';
const RULES_ARE_GONE = 'without rules, no Service has endpoints';
const ROWS: readonly Chaos[] = [
  { what: 'three roll-outs without preStop', service: 'plain', act: rollOut('plain', 3), mayFail: {} },
  { what: 'two roll-outs with preStop', service: 'graceful', act: rollOut('graceful', 2), mayFail: {} },
  {
    what: 'endpoints are added and removed',
    service: 'graceful',
    async act() {
      for (const replicas of [8, 2, 6, 3]) {
        await cluster.ask('scale', 'deployment/graceful', `--replicas=${replicas}`);
        await rolledOut('graceful');
      }
    },
    mayFail: {},
  },
  { what: 'kill -9 of the control plane', service: 'plain', act: kill(CONTROL_PLANE), mayFail: {} },
  {
    what: "kill -9 of the node's agent",
    service: 'plain',
    act: async () => await kill((await cluster.pods('app=client'))[0]?.node ?? 'node-1')(),
    mayFail: { userspace: CONNECTIONS_END },
  },
  {
    what: 'nft flush ruleset on every node',
    service: 'plain',
    async act() {
      for (const { name } of cluster.state().nodes)
        execFileSync('ip', ['netns', 'exec', nodeNetns(cluster.name, name), 'nft', 'flush', 'ruleset']);
      await new Promise((resolve) => setTimeout(resolve, 2000));
    },
    mayFail: { nftables: RULES_ARE_GONE, iptables: RULES_ARE_GONE, userspace: RULES_ARE_GONE },
  },
  {
    what: 'a full disk for three seconds',
    service: 'plain',
    async act() {
      const filler = join(disk, 'filler');
      try {
        for (;;) appendFileSync(filler, Buffer.alloc(1024 * 1024));
      } catch (error) {
        assert.equal((error as { code?: unknown }).code, 'ENOSPC');
      }
      await new Promise((resolve) => setTimeout(resolve, 3000));
      rmSync(filler);
    },
    mayFail: {},
  },
];

const { CHAOS_MODES } = process.env;
const modes = availableModes().filter((mode) => !CHAOS_MODES || CHAOS_MODES.split(' ').includes(mode));

for (const mode of modes) {
  describe(mode, () => {
    before(async () => {
      assert.equal((await cluster.fairlead('mode', mode)).status, 0);
    });
    for (const { what, service, act, mayFail } of ROWS) {
      test(what, async (t) => {
        const seen = await underLoad(cluster, service, act);
        const reason = mayFail[mode];
        t.diagnostic(
          `${mode}, ${what}: ${describeExperience(seen)}${reason ? ` (may fail: ${reason})` : ''}`,
        );
        assert.ok(seen.sent > 100, `only ${seen.sent} requests were sent`);
        if (reason === undefined) assert.equal(seen.failed, 0, describeExperience(seen));
        // After the disturbance no request fails.
        const later = await underLoad(cluster, service, async () => {});
        assert.equal(later.failed, 0, describeExperience(later));
      });
    }
  });
}

function describeExperience({ sent, failed, causes, longestGapMs }: Experience): string {
  const list = Object.entries(causes).map(([cause, count]) => `${cause}: ${count}`);
  return `${sent} sent, ${failed} failed${list.length > 0 ? ` (${list.join(', ')})` : ''}, longest gap ${longestGapMs} ms`;
}
