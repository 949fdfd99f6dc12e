import { readFileSync } from 'node:fs';
import { timestamp } from '../../kube/timestamp.ts';
import { hasCode } from '../../lib/errors.ts';
import {
  bootTime,
  fileSystemUsage,
  memoryTotal,
  type ResourceUsage,
  type UsageReader,
} from './resource-usage.ts';
import type { ServedPod } from './served-pod.ts';

export interface StatsSources {
  readonly nodeName: string;
  readonly stateDir: string;
  readonly pods: readonly ServedPod[];
  readonly usage: UsageReader;
  readonly now: number;
}

const cpuStats = (usage: ResourceUsage) => ({
  time: timestamp(usage.at),
  usageNanoCores: usage.cpuNanocores,
  usageCoreNanoSeconds: usage.cpuNanoseconds,
});
const memoryStats = (usage: ResourceUsage) => ({
  time: timestamp(usage.at),
  usageBytes: usage.memoryBytes,
  workingSetBytes: usage.workingSetBytes,
  rssBytes: usage.rssBytes,
  pageFaults: usage.pageFaults,
  majorPageFaults: usage.majorPageFaults,
});

export interface ContainerUsage {
  readonly name: string;
  readonly startedAt: number;
  readonly usage: ResourceUsage;
}

export function containersOf(pod: ServedPod, usage: UsageReader): ContainerUsage[] {
  return pod.containerNames.flatMap((name) => {
    const container = pod.container(name);
    const startedAt = container?.startedAtMs ?? null;
    if (!container || startedAt === null) return [];
    const used = usage.group(`${pod.cgroup}/${container.id}`, startedAt);
    return used ? [{ name, startedAt, usage: used }] : [];
  });
}

export function podUsage(pod: ServedPod, usage: UsageReader): ResourceUsage | null {
  return usage.group(pod.cgroup, Date.parse(pod.pod.status?.startTime ?? '') || 0);
}

/**
 * Builds the response to /stats/summary (stats.v1alpha1.Summary): the node, and each pod with its running containers.
 */
export function statsSummary({ nodeName, stateDir, pods, usage, now }: StatsSources): object {
  const machine = usage.machine();
  const time = timestamp(now);
  const fs = { time, ...fileSystemUsage(stateDir) };
  const { available } = memoryTotal();
  return {
    node: {
      nodeName,
      startTime: timestamp(bootTime()),
      cpu: cpuStats(machine),
      memory: { ...memoryStats(machine), availableBytes: available },
      network: networkStats('self', time),
      fs,
      runtime: { imageFs: fs },
      rlimit: {
        time,
        maxpid: Number(readFileSync('/proc/sys/kernel/pid_max', 'utf8')),
        curproc: Number(/\/(\d+)/.exec(readFileSync('/proc/loadavg', 'utf8'))?.[1] ?? 0),
      },
    },
    pods: pods.map((pod) => {
      const { name, namespace, uid } = pod.pod.metadata ?? {};
      const whole = podUsage(pod, usage);
      return {
        podRef: { name, namespace, uid },
        startTime: pod.pod.status?.startTime ?? null,
        containers: containersOf(pod, usage).map((container) => ({
          name: container.name,
          startTime: timestamp(container.startedAt),
          cpu: cpuStats(container.usage),
          memory: memoryStats(container.usage),
        })),
        ...(whole ? { cpu: cpuStats(whole), memory: memoryStats(whole) } : {}),
        ...(pod.pausePid !== null && !pod.pod.spec?.hostNetwork
          ? { network: networkStats(String(pod.pausePid), time) }
          : {}),
      };
    }),
  };
}

export interface DeviceStats {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxErrors: number;
  readonly txBytes: number;
  readonly txErrors: number;
}

/** Reads the devices of a process's network namespace (proc_pid_net(5)), without the loopback device. */
export function devicesOf(pid: string): DeviceStats[] {
  let text = '';
  try {
    text = readFileSync(`/proc/${pid}/net/dev`, 'utf8');
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'ESRCH', 'EINVAL')) throw error;
  }
  return text
    .split('\n')
    .slice(2)
    .map((line) => line.trim().split(/[:\s]+/))
    .filter(([name]) => name !== undefined && name !== '' && name !== 'lo')
    .map(([name = '', ...counters]) => ({
      name,
      rxBytes: Number(counters[0]),
      rxErrors: Number(counters[2]),
      txBytes: Number(counters[8]),
      txErrors: Number(counters[10]),
    }));
}

function networkStats(pid: string, time: string): object {
  const interfaces = devicesOf(pid);
  const main = interfaces.find(({ name }) => name === 'eth0') ?? interfaces[0];
  return { time, ...main, interfaces };
}

/**
 * Renders the response to /metrics/resource in Prometheus's text format, which metrics-server and `kubectl top` read.
 */
export function resourceMetrics({ pods, usage, nodeName, now }: StatsSources): string {
  const machine = usage.machine();
  const seconds = (used: ResourceUsage) => used.cpuNanoseconds / 1e9;
  const series = pods.map((pod) => {
    const { name = '', namespace = '' } = pod.pod.metadata ?? {};
    return {
      labels: { namespace, pod: name },
      usage: podUsage(pod, usage),
      containers: containersOf(pod, usage),
    };
  });
  const each = (
    value: (container: ContainerUsage) => number,
    at: (container: ContainerUsage) => number | null,
  ) =>
    series.flatMap(({ labels, containers }) =>
      containers.map((container) => ({
        labels: { container: container.name, ...labels },
        value: value(container),
        at: at(container),
      })),
    );
  const perPod = (value: (used: ResourceUsage) => number) =>
    series.flatMap(({ labels, usage: used }) => (used ? [{ labels, value: value(used), at: used.at }] : []));
  const sampledAt = (container: ContainerUsage) => container.usage.at;
  return [
    metric(
      'container_cpu_usage_seconds_total',
      'counter',
      'Cumulative cpu time consumed by the container in core-seconds',
      each(({ usage: used }) => seconds(used), sampledAt),
    ),
    metric(
      'container_memory_working_set_bytes',
      'gauge',
      'Current working set of the container in bytes',
      each(({ usage: used }) => used.workingSetBytes, sampledAt),
    ),
    metric(
      'container_start_time_seconds',
      'gauge',
      'Start time of the container since unix epoch in seconds',
      each(
        ({ startedAt }) => startedAt / 1000,
        () => null,
      ),
    ),
    metric(
      'node_cpu_usage_seconds_total',
      'counter',
      'Cumulative cpu time consumed by the node in core-seconds',
      [{ labels: {}, value: seconds(machine), at: now }],
    ),
    metric('node_memory_working_set_bytes', 'gauge', 'Current working set of the node in bytes', [
      { labels: {}, value: machine.workingSetBytes, at: now },
    ]),
    metric(
      'pod_cpu_usage_seconds_total',
      'counter',
      'Cumulative cpu time consumed by the pod in core-seconds',
      perPod(seconds),
    ),
    metric(
      'pod_memory_working_set_bytes',
      'gauge',
      'Current working set of the pod in bytes',
      perPod((used) => used.workingSetBytes),
    ),
    metric(
      'resource_scrape_error',
      'gauge',
      '1 if there was an error while getting container metrics, 0 otherwise',
      [{ labels: {}, value: 0, at: null }],
    ),
    metric('kubelet_node_name', 'gauge', "The node's name. The count is always 1.", [
      { labels: { node: nodeName }, value: 1, at: null },
    ]),
  ].join('');
}

/** Renders the response to /metrics: this kubelet's own counters. */
export function kubeletMetrics({ pods, nodeName }: StatsSources): string {
  const containers = pods.flatMap((pod) => pod.containerNames.map((name) => pod.container(name)));
  const running = containers.filter((one) => one?.isRunning).length;
  return [
    metric('kubelet_node_name', 'gauge', "The node's name. The count is always 1.", [
      { labels: { node: nodeName }, value: 1, at: null },
    ]),
    metric('kubelet_running_pods', 'gauge', 'Number of pods that have a running pod sandbox', [
      { labels: {}, value: pods.filter(({ pausePid }) => pausePid !== null).length, at: null },
    ]),
    metric('kubelet_running_containers', 'gauge', 'Number of containers currently running', [
      { labels: { container_state: 'running' }, value: running, at: null },
      { labels: { container_state: 'exited' }, value: containers.length - running, at: null },
    ]),
  ].join('');
}

export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** Milliseconds since 1970; null: without a timestamp. */
  readonly at: number | null;
}

export function metric(name: string, type: string, help: string, samples: readonly Sample[]): string {
  const quoted = (text: string) => `"${text.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`;
  const lines = samples.map(({ labels, value, at }) => {
    const list = Object.entries(labels).map(([key, text]) => `${key}=${quoted(text)}`);
    return `${name}${list.length > 0 ? `{${list.join(',')}}` : ''} ${value}${at === null ? '' : ` ${Math.round(at)}`}\n`;
  });
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}
