import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../kube/types.ts';
import { cadvisorMetrics } from './cadvisor-metrics.ts';
import type { ResourceUsage, UsageReader } from './resource-usage.ts';
import type { ServedContainer, ServedPod } from './served-pod.ts';

const used = (cpuNanoseconds: number): ResourceUsage => ({
  ...{ at: 5000, cpuNanoseconds, cpuNanocores: 0, memoryBytes: 300, workingSetBytes: 200, rssBytes: 100 },
  ...{ pageFaults: 0, majorPageFaults: 0 },
});
const usage: UsageReader = {
  group: (group) => (group === '/pods/a' ? used(3e9) : group === '/pods/a/main-1' ? used(2e9) : null),
  machine: () => used(9e9),
};
const container = (id: string, startedAtMs: number | null) => ({ id, startedAtMs }) as ServedContainer;
const pod = (fields: Partial<ServedPod> & { readonly hostNetwork?: boolean }): ServedPod => ({
  pod: {
    metadata: { namespace: 'ns', name: 'web', uid: 'u' },
    spec: { hostNetwork: fields.hostNetwork ?? false },
    status: { containerStatuses: [{ name: 'main', image: 'nginx:1' }] },
  } as Pod,
  pausePid: process.pid,
  cgroup: '/pods/a',
  containerNames: ['main', 'ended'],
  container: (name) => (name === 'main' ? container('main-1', 4000) : container('ended-1', null)),
  ...fields,
});

const MAIN = 'container="main",id="/pods/a/main-1",image="nginx:1",name="main-1",namespace="ns",pod="web"';
const WHOLE = 'container="",id="/pods/a",image="",name="",namespace="ns",pod="web"';

const ROWS: readonly { name: string; pods: readonly ServedPod[]; has: readonly string[]; lacks: RegExp }[] = [
  {
    name: 'a running container and its pod',
    pods: [pod({})],
    has: [
      `container_cpu_usage_seconds_total{${MAIN}} 2 5000`,
      `container_cpu_usage_seconds_total{${WHOLE}} 3 5000`,
      `container_memory_working_set_bytes{${MAIN}} 200 5000`,
      `container_memory_rss{${MAIN}} 100 5000`,
      `container_start_time_seconds{${MAIN}} 4 5000`,
    ],
    lacks: /ended/,
  },
  {
    name: "a pod with the node's network, whose devices are not its own",
    pods: [pod({ hostNetwork: true })],
    has: [`container_memory_usage_bytes{${MAIN}} 300 5000`],
    lacks: /container_network_[a-z_]+\{/,
  },
  { name: 'a pod whose control group is gone', pods: [pod({ cgroup: '/pods/b' })], has: [], lacks: /rss\{/ },
  { name: 'no pod', pods: [], has: ['# TYPE container_memory_rss gauge'], lacks: /pod="/ },
];

for (const { name, pods, has, lacks } of ROWS) {
  test(`metrics of cAdvisor: ${name}`, () => {
    const text = cadvisorMetrics({ nodeName: 'n', stateDir: '/', pods, usage, now: 6000 });
    const lines = text.split('\n');
    for (const line of has) assert.ok(lines.includes(line), line);
    assert.doesNotMatch(text, lacks);
    assert.match(text, /^machine_memory_bytes \d+ 6000$/m);
  });
}

test('metrics of cAdvisor: the devices of a pod, without the loopback device', () => {
  const text = cadvisorMetrics({ nodeName: 'n', stateDir: '/', pods: [pod({})], usage, now: 6000 });
  assert.doesNotMatch(text, /interface="lo"/);
  for (const line of text.match(/^container_network_receive_bytes_total\{.*$/gm) ?? [])
    assert.match(line, /pod="web",interface="[^"]+"\} \d+ 6000$/);
});
