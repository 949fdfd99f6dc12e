import { createHash } from 'node:crypto';
import type { Client } from '../src/kube/client.ts';
import { type Node, RESOURCES } from '../src/kube/types.ts';

/** The images that a kubelet reports at most. */
const IMAGES = 50;
/** A kubelet reports its node this often if nothing has changed. */
const REPORT_SECONDS = 300;

type NodeStatus = NonNullable<Node['status']>;

/** Creates nodes whose objects are as large as those of kubelets, as `node-1` and so on. */
export async function createNodes(client: Client, count: number): Promise<void> {
  for (let i = 1; i <= count; i++) {
    const name = `node-${i}`;
    const labels = {
      'beta.kubernetes.io/arch': 'amd64',
      'beta.kubernetes.io/os': 'linux',
      'kubernetes.io/arch': 'amd64',
      'kubernetes.io/hostname': name,
      'kubernetes.io/os': 'linux',
      'node.kubernetes.io/instance-type': 'standard-8',
      'topology.kubernetes.io/region': 'region-1',
      'topology.kubernetes.io/zone': `zone-${i % 3}`,
    };
    await client.create(RESOURCES.nodes, { metadata: { name, labels } });
    await patchStatus(client, name, statusOf(i));
  }
}

/** Sends the reports of the kubelets of `count` nodes until the result is called. */
export function reportNodes(client: Client, count: number): () => void {
  let i = 0;
  const timer = setInterval(
    () => {
      i = (i % count) + 1;
      patchStatus(client, `node-${i}`, { conditions: conditions() }).catch((error: unknown) => {
        console.error('a report of a node failed:', error);
      });
    },
    (REPORT_SECONDS * 1000) / count,
  );
  return () => clearInterval(timer);
}

async function patchStatus(client: Client, name: string, status: NodeStatus): Promise<void> {
  await client.patch(RESOURCES.nodes, name, 'strategic', { status }, { subresource: 'status' });
}

function conditions(): NonNullable<NodeStatus['conditions']> {
  const time = new Date().toISOString().replace(/\.\d+/, '');
  const condition = (type: string, status: string, reason: string, message: string) => ({
    type,
    status,
    reason,
    message,
    lastHeartbeatTime: time,
    lastTransitionTime: '2026-01-01T00:00:00Z',
  });
  return [
    condition(
      'MemoryPressure',
      'False',
      'KubeletHasSufficientMemory',
      'kubelet has sufficient memory available',
    ),
    condition('DiskPressure', 'False', 'KubeletHasNoDiskPressure', 'kubelet has no disk pressure'),
    condition('PIDPressure', 'False', 'KubeletHasSufficientPID', 'kubelet has sufficient PID available'),
    condition('Ready', 'True', 'KubeletReady', 'kubelet is posting ready status'),
  ];
}

function statusOf(i: number): NodeStatus {
  const resources = {
    cpu: '8',
    'ephemeral-storage': '101430960Ki',
    'hugepages-1Gi': '0',
    'hugepages-2Mi': '0',
    memory: '32863200Ki',
    pods: '110',
  };
  const digest = (text: string) => createHash('sha256').update(text).digest('hex');
  return {
    addresses: [
      { type: 'InternalIP', address: `172.16.${i >> 8}.${i & 255}` },
      { type: 'Hostname', address: `node-${i}` },
    ],
    capacity: resources,
    allocatable: resources,
    conditions: conditions(),
    daemonEndpoints: { kubeletEndpoint: { Port: 10250 } },
    images: Array.from({ length: IMAGES }, (_, image) => {
      const name = `registry.example.com/team-${image % 7}/service-${image}`;
      return {
        names: [`${name}@sha256:${digest(name)}`, `${name}:v1.${image}.0`],
        sizeBytes: 50_000_000 + image,
      };
    }),
    nodeInfo: {
      architecture: 'amd64',
      bootID: '2f8a3c1e-7d4b-4f0a-9c55-1b1f0e6a7d21',
      containerRuntimeVersion: 'containerd://2.1.4',
      kernelVersion: '6.18.0-generic',
      kubeProxyVersion: '',
      kubeletVersion: 'v1.36.0',
      machineID: digest(`machine-${i}`).slice(0, 32),
      operatingSystem: 'linux',
      osImage: 'Ubuntu 26.04 LTS',
      systemUUID: '5e1d0a7c-3b52-4a43-8f39-0c8d5b1a9e64',
    },
  };
}
