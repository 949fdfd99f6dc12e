import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ApiFixture } from './api-fixture.ts';

const root = join(import.meta.dirname, '..');
const POLL_MS = 250;

/** A proxy that runs as a process of its own. */
export interface MeasuredProcess {
  readonly pid: number;
  /** Milliseconds from the command until the kernel has every Service. */
  readonly readyMs: number;
  stop(): Promise<void>;
}

export interface MeasuredOptions {
  readonly api: ApiFixture;
  /** The name of the node. */
  readonly node: string;
  /** The network of the cluster's pods. */
  readonly podCidr: string;
  readonly serviceCidr: string;
}

/** Starts the bundled agent as a node's service manager does. `part`: "proxy", or "proxy+dns". */
export async function startAgent(
  { api, node, podCidr, serviceCidr }: MeasuredOptions,
  part: string,
  mode: string,
): Promise<MeasuredProcess> {
  const config = api.file(
    `${part}.yaml`,
    JSON.stringify({
      apiVersion: 'fairlead.dev/v1alpha1',
      kind: 'AgentConfiguration',
      nodeName: node,
      kubeconfig: api.kubeconfig,
      stateDir: join(api.folder, `state-${part}`),
      proxy: { mode, clusterCIDRs: [podCidr], serviceCIDRs: [serviceCidr], syncPeriodMs: 3_600_000 },
      ...(part.includes('dns') ? { dns: { addresses: ['10.96.0.10'], upstreams: ['192.0.2.1'] } } : {}),
      metricsBindAddress: '127.0.0.1:10249',
    }),
  );
  const started = performance.now();
  const child = spawn(join(root, 'fairlead'), ['agent', '--config', config], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, FAIRLEAD_LOG: 'info' },
  });
  const readyMs = await new Promise<number>((resolve, reject) => {
    child.once('close', (status) => reject(new Error(`the agent ended with status ${status}`)));
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { msg, level } = JSON.parse(line) as { msg: string; level: number };
      if (level >= 40) console.error(`agent: ${msg}`);
      if (msg === 'node is ready') resolve(performance.now() - started);
    });
  });
  return running(child, readyMs);
}

/** Starts kube-proxy in nftables mode and waits until its map has the cluster IP. */
export async function startKubeProxy(
  { api, node, podCidr }: MeasuredOptions,
  program: string,
  clusterIP: string,
): Promise<MeasuredProcess> {
  const config = api.file(
    'kube-proxy.yaml',
    JSON.stringify({
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      mode: 'nftables',
      hostnameOverride: node,
      clusterCIDR: podCidr,
      clientConnection: { kubeconfig: api.kubeconfig },
      metricsBindAddress: '127.0.0.1:10249',
      healthzBindAddress: '127.0.0.1:10256',
      conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
    }),
  );
  const started = performance.now();
  const child = spawn(program, ['--config', config], { stdio: ['ignore', 'inherit', 'inherit'] });
  const element = `{ ${clusterIP} . tcp . 80 }`;
  const isProgrammed = () => {
    try {
      execFileSync('nft', ['get', 'element', 'ip', 'kube-proxy', 'service-ips', element], {
        stdio: 'ignore',
      });
      return true;
    } catch {
      // Neither the table nor the element is there yet.
      return false;
    }
  };
  while (!isProgrammed()) {
    if (child.exitCode !== null) throw new Error(`kube-proxy ended with status ${child.exitCode}`);
    await sleep(POLL_MS);
  }
  return running(child, performance.now() - started);
}

function running(child: ChildProcess, readyMs: number): MeasuredProcess {
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  return {
    pid: child.pid ?? 0,
    readyMs,
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

/** Returns the value at a quantile; NaN if there are none. */
export const quantileOf = (values: readonly number[], quantile: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * quantile)] ?? Number.NaN;
