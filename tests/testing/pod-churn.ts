import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CORE } from '../../src/apiserver/testing/api.ts';
import { hasCode } from '../../src/lib/errors.ts';
import { readControlGroups } from '../../src/runtime/control-groups.ts';
import type { PodNode } from './pod-node.ts';

/** The durations of one round of starting and stopping pods, in milliseconds. */
export interface ChurnRound {
  /** For each pod, from its creation until it is ready, shortest first. */
  readonly started: readonly number[];
  /** From the first creation until all are ready. */
  readonly allStarted: number;
  /** From the first deletion until all are gone. */
  readonly allStopped: number;
}

const PATIENCE_MS = 300_000;
const LOOK_MS = 25;

interface SeenPod {
  readonly metadata: { readonly name: string };
  readonly status?: {
    readonly podIP?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

/**
 * Starts pods on a node concurrently, waits until they are ready, and stops them. Throws if two of them
 * have the same address, or if an address was assigned while another pod had it.
 */
export async function churnPods(node: PodNode, count: number, prefix: string): Promise<ChurnRound> {
  const names = Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
  const list = async (): Promise<SeenPod[]> => (await node.api.request('GET', `${CORE}/pods`)).body.items;
  const begun = performance.now();
  const created = new Map<string, number>();
  for (const name of names) {
    created.set(name, performance.now());
    await node.createPod(name, {
      // An init that passes signals on: sleep alone, as process 1, would wait for the end of the grace
      // period.
      containers: [{ name: 'main', image: 'host', command: ['catatonit', '--', 'sleep', '1000'] }],
    });
  }
  const ready = new Map<string, number>();
  let pods: SeenPod[] = [];
  await until(`${count} pods to be ready`, async () => {
    pods = await list();
    const now = performance.now();
    for (const { metadata, status } of pods) {
      const isReady = status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True');
      const from = created.get(metadata.name);
      if (isReady && from !== undefined && !ready.has(metadata.name)) ready.set(metadata.name, now - from);
    }
    return ready.size === count;
  });
  const allStarted = performance.now() - begun;
  const addresses = pods.map(({ status }) => status?.podIP ?? '');
  if (addresses.includes('') || new Set(addresses).size !== count) {
    throw new Error(`two pods have one address: ${addresses.sort().join(' ')}`);
  }
  const stopping = performance.now();
  for (const name of names) await node.api.request('DELETE', `${CORE}/pods/${name}`);
  await until(`${count} pods to be gone`, async () => (await list()).length === 0);
  const allStopped = performance.now() - stopping;
  checkJournal(node);
  return { started: [...ready.values()].sort((a, b) => a - b), allStarted, allStopped };
}

/**
 * Describes all state that pods have left on the node; empty if it equals the state before the first pod.
 */
export function podLeftovers(node: PodNode): string[] {
  const processes = readdirSync('/proc')
    .filter((entry) => /^[0-9]+$/.test(entry))
    .flatMap((pid) => {
      const command = readOptional(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');
      const group = readOptional(`/proc/${pid}/cgroup`);
      const isTheirs =
        command.includes(`${node.stateDir}/runtime`) || group.includes(`:${node.cgroupParent}/`);
      // A zombie has no command line; its parent has to reap it.
      return isTheirs && command !== '' ? [`process ${pid}: ${command}`] : [];
    });
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    // The layers of the built-in images belong to the node, for all pods.
    .filter((target) => target.startsWith(`${node.stateDir}/pods/`));
  const root = readControlGroups()?.root ?? '';
  const groups = folders(join(root, node.cgroupParent));
  const held = journal(node).filter((record) => record.held);
  return [
    ...processes,
    ...netDevices()
      .filter((name) => name.startsWith('flp'))
      .map((name) => `device ${name}`),
    ...mounts.map((target) => `mount ${target}`),
    ...groups.map((name) => `control group ${name}`),
    ...folders(join(node.stateDir, 'pods')).map((uid) => `folder pods/${uid}`),
    ...readdirSync(join(node.stateDir, 'runtime', 'exits')).map((file) => `exit file ${file}`),
    ...folders(join(node.stateDir, 'runtime', 'crun')).map((id) => `container ${id}`),
    ...held.map(({ uid, ips }) => `address ${ips.join(', ')} of ${uid}`),
  ];
}

/** Returns the devices of this thread's namespace: /sys shows the namespace that it was mounted in. */
function netDevices(): string[] {
  return readFileSync('/proc/thread-self/net/dev', 'utf8')
    .split('\n')
    .slice(2)
    .map((line) => (line.split(':')[0] ?? '').trim());
}

interface Holder {
  readonly uid: string;
  readonly ips: readonly string[];
  held: boolean;
}

/**
 * Returns the holders of addresses, by the node's journal. Throws if an address was assigned while it was
 * in use.
 */
function journal(node: PodNode): Holder[] {
  const holders = new Map<string, Holder>();
  const byAddress = new Map<string, Holder>();
  for (const line of readFileSync(join(node.stateDir, 'pod-addresses.jsonl'), 'utf8').split('\n')) {
    if (line === '') continue;
    const entry = JSON.parse(line) as { take?: { uid: string; ips: string[] }; free?: string };
    if (entry.take) {
      const { uid, ips } = entry.take;
      for (const ip of ips) {
        const before = byAddress.get(ip);
        if (before?.held && before.uid !== uid)
          throw new Error(`${ip} was given to ${uid} while ${before.uid} had it`);
      }
      const holder = { uid, ips, held: true };
      holders.set(uid, holder);
      for (const ip of ips) byAddress.set(ip, holder);
    } else {
      const holder = holders.get(entry.free ?? '');
      if (holder) holder.held = false;
    }
  }
  return [...holders.values()];
}

const checkJournal = (node: PodNode) => void journal(node);

async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  for (const end = Date.now() + PATIENCE_MS; !(await holds()); ) {
    if (Date.now() > end) throw new Error(`waited ${PATIENCE_MS / 1000} s for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

function folders(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
}

function readOptional(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH', 'EACCES')) return '';
    throw error;
  }
}
