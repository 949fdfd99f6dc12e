import { type ChildProcess, execFile, fork, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CORE } from '../../src/apiserver/testing/api.ts';
import { libc, systemError } from '../../src/kernel/libc.ts';
import { openNetns } from '../../src/kernel/netns.ts';
import { createTopology, nodeNetns, removeTopology } from '../../src/network/topology.ts';
import { removeRuntimeState } from '../../src/runtime/runtime-state.ts';
import { type NodeApi, startNodeApi } from './node-api.ts';
import type { NodeProcessInput } from './node-process.ts';

const CLONE_NEWNET = 0x40000000;
const ADDRESS = '172.30.9.11';

/**
 * A node of a separate cluster whose pods are run by a separate process. This process is in the node's
 * network.
 */
export interface PodNode {
  readonly api: NodeApi;
  readonly stateDir: string;
  readonly cgroupParent: string;
  /** Starts the node's process; resolves once it has listed its pods. */
  startAgent(): Promise<void>;
  /** kill -9. */
  killAgent(): Promise<void>;
  createPod(name: string, spec: object, metadata?: object): Promise<void>;
  // biome-ignore lint/suspicious/noExplicitAny: tests read into the fields that they expect
  pod(name: string): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  until(name: string, what: (pod: any) => unknown): Promise<any>;
  /** Resolves once the pod's phase is Running. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  untilRunning(name: string): Promise<any>;
  /** Deletes a pod (`seconds`: its grace period) and waits until it is gone. */
  removePod(name: string, seconds?: number): Promise<void>;
  /** Returns the log of a pod's container; `query`: "?container=main". */
  // biome-ignore lint/suspicious/noExplicitAny: text, or the Status of an error
  logs(name: string, query?: string): Promise<any>;
  /** Runs kubectl as the cluster's administrator until it exits. */
  kubectl(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }>;
  /** Starts kubectl with its own terminal (script(1)) or with pipes. */
  startKubectl(args: readonly string[], options?: { readonly terminal?: boolean }): ChildProcess;
  close(): Promise<void>;
}

/**
 * Creates the node. While it exists this process is inside its network namespace: packets cannot leave it.
 */
export async function startPodNode(): Promise<PodNode> {
  const cluster = `flt${randomBytes(3).toString('hex')}`;
  const stateDir = mkdtempSync(join(tmpdir(), 'flt-node-'));
  const cgroupParent = `/${cluster}`;
  createTopology({
    cluster,
    wireCidrs: ['172.30.9.0/24'],
    controlPlaneAddresses: ['172.30.9.1'],
    outsideAddresses: ['172.30.9.2'],
    nodes: [{ name: 'node-1', addresses: [ADDRESS] }],
  });
  const home = openSync('/proc/self/ns/net', 'r');
  enter(nodeNetns(cluster, 'node-1'));
  const api = await startNodeApi(6443);
  const { authority } = api;
  const admin = authority.issue({ commonName: 'admin', organizations: ['system:masters'], usage: 'client' });
  await api.request('POST', '/api/v1/nodes', {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'node-1' },
  });
  await api.request('PUT', '/api/v1/nodes/node-1/status', {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'node-1' },
    status: {
      addresses: [{ type: 'InternalIP', address: ADDRESS }],
      daemonEndpoints: { kubeletEndpoint: { Port: 10250 } },
    },
  });
  const input: NodeProcessInput = {
    nodeName: 'node-1',
    addresses: [ADDRESS],
    podCidrs: ['10.244.1.0/24'],
    stateDir,
    cgroupParent,
    server: 'https://127.0.0.1:6443',
    ca: authority.cert,
    client: admin,
    serving: authority.issue({ commonName: 'node-1', names: [ADDRESS], usage: 'server' }),
  };
  const files = { ca: authority.cert, cert: admin.cert, key: admin.key };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(stateDir, `${name}.pem`), text);
  const config = [
    '--kubeconfig=/dev/null',
    `--cache-dir=${join(stateDir, 'kubectl')}`,
    '--server=https://127.0.0.1:6443',
    `--certificate-authority=${join(stateDir, 'ca.pem')}`,
    `--client-certificate=${join(stateDir, 'cert.pem')}`,
    `--client-key=${join(stateDir, 'key.pem')}`,
  ];
  const children = new Set<ChildProcess>();
  let agent: ChildProcess | null = null;
  const node: PodNode = {
    api,
    stateDir,
    cgroupParent,
    kubectl(...args) {
      return new Promise((resolve) => {
        execFile('kubectl', [...config, ...args], { timeout: 60_000 }, (error, stdout, stderr) => {
          const code = error ? (typeof error.code === 'number' ? error.code : 1) : 0;
          resolve({ code, stdout, stderr });
        });
      });
    },
    startKubectl(args, { terminal = false } = {}) {
      const child = terminal
        ? spawn('script', ['-qefc', ['kubectl', ...config, ...args].join(' '), '/dev/null'])
        : spawn('kubectl', [...config, ...args]);
      children.add(child);
      child.once('exit', () => children.delete(child));
      return child;
    },
    async startAgent() {
      const child = fork(join(import.meta.dirname, 'node-process.ts'), [JSON.stringify(input)], {
        // An additional certificate authority, configured as an administrator would.
        env: { ...process.env, NODE_EXTRA_CA_CERTS: join(stateDir, 'ca.pem') },
      });
      agent = child;
      await new Promise<void>((resolve, reject) => {
        child.once('message', () => resolve());
        child.once('exit', (code) => reject(new Error(`the node's process ended with ${code}`)));
      });
    },
    async killAgent() {
      const child = agent;
      agent = null;
      if (!child || child.exitCode !== null) return;
      await new Promise((resolve) => {
        child.once('exit', resolve);
        child.kill('SIGKILL');
      });
    },
    async createPod(name, spec, metadata = {}) {
      const answer = await api.request('POST', `${CORE}/pods`, {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name, ...metadata },
        spec: { nodeName: 'node-1', terminationGracePeriodSeconds: 1, ...spec },
      });
      if (answer.status !== 201) throw new Error(JSON.stringify(answer.body));
    },
    async pod(name) {
      const answer = await api.request('GET', `${CORE}/pods/${name}`);
      return answer.status === 404 ? null : answer.body;
    },
    async until(name, what) {
      const end = Date.now() + 60_000;
      for (;;) {
        const pod = await node.pod(name);
        if (await what(pod)) return pod;
        if (Date.now() > end) throw new Error(`waited 60 s for pod ${name}: ${JSON.stringify(pod?.status)}`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    untilRunning: (name) => node.until(name, (one) => one?.status.phase === 'Running'),
    async removePod(name, seconds) {
      const query = seconds === undefined ? '' : `?gracePeriodSeconds=${seconds}`;
      await api.request('DELETE', `${CORE}/pods/${name}${query}`);
      await node.until(name, (one) => one === null);
    },
    logs: async (name, query = '') => (await api.request('GET', `${CORE}/pods/${name}/log${query}`)).body,
    async close() {
      for (const child of children) child.kill('SIGKILL');
      await node.killAgent();
      await removeRuntimeState(stateDir, cgroupParent);
      await api.close();
      if (libc().setns(home, CLONE_NEWNET) !== 0) throw systemError('leave network namespace');
      closeSync(home);
      removeTopology(cluster);
      rmSync(stateDir, { recursive: true, force: true });
    },
  };
  return node;
}

function enter(netns: string): void {
  const fd = openNetns(netns);
  if (libc().setns(fd, CLONE_NEWNET) !== 0) throw systemError('enter network namespace', netns);
  closeSync(fd);
}
