import { availableParallelism } from 'node:os';
import { memoryTotal, type ResourceUsage } from './resource-usage.ts';
import type { ServedPod } from './served-pod.ts';
import {
  containersOf,
  type DeviceStats,
  devicesOf,
  metric,
  podUsage,
  type Sample,
  type StatsSources,
} from './stats.ts';

/** A container, or a whole pod, whose labels of the container are empty then. */
interface Group {
  readonly labels: Readonly<Record<string, string>>;
  readonly usage: ResourceUsage;
  /** Milliseconds since 1970; null: unknown. */
  readonly startedAt: number | null;
}

type Family = readonly [name: string, type: string, help: string, value: (group: Group) => number | null];

const FAMILIES: readonly Family[] = [
  [
    'container_cpu_usage_seconds_total',
    'counter',
    'Cumulative cpu time consumed in seconds.',
    ({ usage }) => usage.cpuNanoseconds / 1e9,
  ],
  [
    'container_memory_usage_bytes',
    'gauge',
    'Current memory usage in bytes.',
    ({ usage }) => usage.memoryBytes,
  ],
  [
    'container_memory_working_set_bytes',
    'gauge',
    'Current working set in bytes.',
    ({ usage }) => usage.workingSetBytes,
  ],
  ['container_memory_rss', 'gauge', 'Size of RSS in bytes.', ({ usage }) => usage.rssBytes],
  [
    'container_start_time_seconds',
    'gauge',
    'Start time of the container since unix epoch in seconds.',
    ({ startedAt }) => (startedAt === null ? null : startedAt / 1000),
  ],
];

const NETWORK: readonly (readonly [name: string, help: string, value: (device: DeviceStats) => number])[] = [
  ['container_network_receive_bytes_total', 'Cumulative count of bytes received', ({ rxBytes }) => rxBytes],
  [
    'container_network_receive_errors_total',
    'Cumulative count of errors encountered while receiving',
    ({ rxErrors }) => rxErrors,
  ],
  [
    'container_network_transmit_bytes_total',
    'Cumulative count of bytes transmitted',
    ({ txBytes }) => txBytes,
  ],
  [
    'container_network_transmit_errors_total',
    'Cumulative count of errors encountered while transmitting',
    ({ txErrors }) => txErrors,
  ],
];

/**
 * Renders the response to /metrics/cadvisor: those of cAdvisor's metrics by which the usual dashboards and rules show pods'
 * processors, memory and network. Series of a whole pod have an empty container, image and name.
 */
export function cadvisorMetrics(sources: StatsSources): string {
  const { pods, now } = sources;
  const groups = pods.flatMap((pod) => groupsOf(pod, sources));
  const families = FAMILIES.map(([name, type, help, value]) =>
    metric(
      name,
      type,
      help,
      groups.flatMap((group): Sample[] => {
        const found = value(group);
        return found === null ? [] : [{ labels: group.labels, value: found, at: group.usage.at }];
      }),
    ),
  );
  const devices = pods.flatMap((pod) =>
    pod.pausePid === null || pod.pod.spec?.hostNetwork
      ? []
      : devicesOf(String(pod.pausePid)).map((device) => ({ labels: labelsOf(pod, pod.cgroup), device })),
  );
  const network = NETWORK.map(([name, help, value]) =>
    metric(
      name,
      'counter',
      help,
      devices.map(({ labels, device }) => ({
        labels: { ...labels, interface: device.name },
        value: value(device),
        at: now,
      })),
    ),
  );
  return [
    ...families,
    ...network,
    metric('machine_cpu_cores', 'gauge', 'Number of logical CPU cores.', [
      { labels: {}, value: availableParallelism(), at: now },
    ]),
    metric('machine_memory_bytes', 'gauge', 'Amount of memory installed on the machine.', [
      { labels: {}, value: memoryTotal().total, at: now },
    ]),
  ].join('');
}

function groupsOf(pod: ServedPod, { usage }: StatsSources): Group[] {
  const images = new Map(pod.pod.status?.containerStatuses?.map(({ name, image }) => [name, image]));
  const containers = containersOf(pod, usage).map((container): Group => {
    const id = pod.container(container.name)?.id ?? '';
    const image = images.get(container.name) ?? '';
    const labels = labelsOf(pod, `${pod.cgroup}/${id}`, { container: container.name, image, name: id });
    return { labels, usage: container.usage, startedAt: container.startedAt };
  });
  const whole = podUsage(pod, usage);
  if (!whole) return containers;
  return [...containers, { labels: labelsOf(pod, pod.cgroup), usage: whole, startedAt: null }];
}

function labelsOf(
  { pod }: ServedPod,
  id: string,
  own = { container: '', image: '', name: '' },
): Readonly<Record<string, string>> {
  const { namespace = '', name: podName = '' } = pod.metadata ?? {};
  return { container: own.container, id, image: own.image, name: own.name, namespace, pod: podName };
}
