import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { ProcessIdentity } from '../../kernel/process-identity.ts';
import type { Client } from '../../kube/client.ts';
import { shareReads } from '../../kube/shared-reads.ts';
import type { Pod } from '../../kube/types.ts';
import { type ManualClock, manualClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { makeNodeLogs } from '../node-logs.ts';
import { NodeResources } from '../node-resources.ts';
import type { PodProcesses } from '../pod-processes.ts';
import type { Image } from '../rootfs.ts';
import type { Sandbox } from '../sandbox.ts';
import type { WorkerContext } from '../worker-context.ts';

const START = Date.parse('2026-01-01T00:00:00Z');
/** Steps of the clock: promises settle between them. */
const TICK_MS = 50;
const ROUNDS = 25;

/** The behaviour of everything outside the kubelet; tests change it at any time. */
export interface World {
  /** Whether processes end at SIGTERM. */
  obeysTerm: boolean;
  /** The error of the next starts; null: they succeed. */
  startError: Error | null;
  attachError: Error | null;
  image: 'present' | 'missing' | 'invalid';
  /** The error of pulls; null: they succeed. */
  pullError: Error | null;
  /** The exit code of commands in containers: probes and hooks. */
  execCode: number;
}

/** A node without processes, network and API server: it records a kubelet's actions. */
export interface FakeNode {
  readonly clock: ManualClock;
  readonly world: World;
  readonly context: WorkerContext;
  /** "0 start main-0": the time in milliseconds, and an action. */
  readonly actions: string[];
  note(action: string): void;
  /** Ends a container's current run with this code; null: its process disappears without one. */
  exit(container: string, code: number | null): void;
  /** Ends the monitors of all runs, which record their exit codes. */
  loseMonitors(): void;
  /** Ends the pause process. */
  loseSandbox(): void;
  /** Waits until promises have settled. */
  settle(): Promise<void>;
  advance(ms: number): Promise<void>;
  close(): void;
}

const IMAGE = { name: 'app', id: 'app@sha256:1', stopSignal: 'SIGTERM', layers: [] } as unknown as Image;

type Note = (action: string) => void;

function fakeNetwork(world: World, note: Note) {
  const addresses = new Map<string, string[]>();
  return {
    async attach({ uid }: { readonly uid: string }) {
      note('attach network');
      if (world.attachError) throw world.attachError;
      addresses.set(uid, ['10.244.0.5']);
      return { ips: ['10.244.0.5'] };
    },
    async detach(uid: string) {
      if (addresses.delete(uid)) note('detach network');
    },
    addresses: (uid: string) => addresses.get(uid) ?? null,
    collect: async () => [],
  };
}

const fakeImages = (world: World, note: Note) => ({
  present() {
    if (world.image === 'invalid') throw new Error('invalid image name');
    return world.image === 'present' ? IMAGE : null;
  },
  async pull() {
    note('pull');
    if (world.pullError) throw world.pullError;
    return IMAGE;
  },
  onChange() {},
  close() {},
});

/** Its length is that of the interfaces of a node that it has. */
export function fakeNode(): FakeNode {
  const clock = manualClock(START);
  const stateDir = mkdtempSync(join(tmpdir(), 'flt-runtime-'));
  mkdirSync(join(stateDir, 'pods'));
  makeNodeLogs(stateDir);
  const actions: string[] = [];
  const note: Note = (action) => void actions.push(`${clock.now() - START} ${action}`);
  const world: World = {
    ...{ obeysTerm: true, startError: null, attachError: null, image: 'present', pullError: null },
    execCode: 0,
  };
  const runs = new Map<number, { readonly id: string; alive: boolean; exitCode: number | null }>();
  const runOf = (id: string) => [...runs.values()].findLast((run) => run.id === id);
  let pids = 100;
  let sandbox: Sandbox | null = null;
  let isSandboxAlive = false;
  let hasMonitors = true;
  const shortName = (id: string) => id.replace(/^[^-]*-/, '');

  const processes: PodProcesses = {
    adoptSandbox: () => (isSandboxAlive ? sandbox : null),
    createSandbox() {
      note('create sandbox');
      isSandboxAlive = true;
      sandbox = { pause: { pid: ++pids, startTime: '0' }, createdAt: new Date(clock.now()).toISOString() };
      return sandbox;
    },
    sandboxFailure: () => null,
    removeSandbox() {
      if (isSandboxAlive) note('remove sandbox');
      isSandboxAlive = false;
    },
    async removeGroup() {},
    isRunning: ({ pid }) => (pid === sandbox?.pause.pid ? isSandboxAlive : (runs.get(pid)?.alive ?? false)),
    signal({ pid }, signal) {
      const run = runs.get(pid);
      if (!run?.alive) return false;
      note(`${signal} ${shortName(run.id)}`);
      if (signal !== 'SIGKILL' && !world.obeysTerm) return true;
      run.alive = false;
      run.exitCode = signal === 'SIGKILL' ? 137 : 143;
      return true;
    },
    async start(_launch, _image, { id }, created) {
      note(`start ${shortName(id)}`);
      if (world.startError) throw world.startError;
      const process: ProcessIdentity = { pid: ++pids, startTime: '0' };
      const startedAt = new Date(clock.now()).toISOString();
      const started = { process, startedAt, user: { uid: 0, gid: 0, groups: [] } };
      runs.set(process.pid, { id, alive: true, exitCode: null });
      created(started);
      return started;
    },
    confine() {},
    exitCode: (id) => runOf(id)?.exitCode ?? null,
    isMonitored: () => hasMonitors,
    exec: async (_run, [command]) => {
      note(`exec ${command}`);
      return { code: world.execCode, stdout: '', stderr: '' };
    },
    async resize(_run, { name, resources }) {
      note(`resize ${name} to ${JSON.stringify(resources?.limits)}`);
    },
    async removeRun({ id, bundle }) {
      if (runOf(id)) note(`remove ${shortName(id)}`);
      rmSync(bundle, { recursive: true, force: true });
    },
  };

  const options = {
    nodeName: 'node-1',
    nodeAddresses: ['192.0.2.1'],
    stateDir,
    cgroupParent: '/test',
    maxPods: 10,
    network: fakeNetwork(world, note),
    clusterDns: ['10.96.0.10'],
    clusterDomain: 'cluster.local',
    apiService: { host: '10.96.0.1', port: 443 },
    logger: silentLogger,
    clock,
  };
  const client = {
    list: async () => ({ items: [] }),
    get: async () => Promise.reject(new Error('no objects here')),
  } as unknown as Client;
  let reported = '';
  const context = {
    options,
    client,
    reader: shareReads(client, clock),
    paths: { root: '', crun: '', exits: '', program: '' },
    processes,
    events: {
      event: (_object: unknown, _type: string, reason: string) => note(`event ${reason}`),
      flush: async () => {},
    },
    images: fakeImages(world, note),
    allocatable: { cpu: '2', memory: '1Gi', pods: '10' },
    resources: new NodeResources({ cpu: '2', memory: '1Gi', pods: '10' }),
    publish(_pod: Pod, status: NonNullable<Pod['status']>) {
      const text = `status ${status.phase}${status.reason ? ` ${status.reason}` : ''}`;
      if (text !== reported) note(text);
      reported = text;
    },
    // Without a time: files are deleted by other threads, which do not follow this clock.
    finalize: async () => void actions.push('finalize'),
  } as unknown as WorkerContext;

  async function settle(): Promise<void> {
    for (let round = 0; round < ROUNDS; round++) await setImmediate();
  }

  return {
    clock,
    world,
    context,
    actions,
    note,
    exit(container, code) {
      const found = [...runs.values()].findLast(({ id }) => shortName(id).startsWith(`${container}-`));
      if (!found) throw new Error(`container ${container} never ran`);
      found.alive = false;
      found.exitCode = code;
    },
    loseMonitors() {
      hasMonitors = false;
    },
    loseSandbox() {
      isSandboxAlive = false;
    },
    settle,
    async advance(ms) {
      for (let left = ms; left > 0; left -= TICK_MS) {
        clock.advance(Math.min(left, TICK_MS));
        for (let round = 0; round < 4; round++) await setImmediate();
      }
      await settle();
    },
    close: () => rmSync(stateDir, { recursive: true, force: true }),
  };
}
