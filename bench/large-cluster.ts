import type { NodeView } from '../src/service/model.ts';
import type { EndpointSliceObject, ServiceObject } from '../src/service/objects.ts';
import { createServiceTable, type ServiceTable } from '../src/service/service-table.ts';
import { network, testNode } from '../src/service/testing/test-node.ts';

/** Number of nodes of the endpoints of a large cluster; this node is "node-0". */
const NODES = 100;

export interface LargeCluster {
  readonly services: readonly ServiceObject[];
  readonly slices: readonly EndpointSliceObject[];
}

/** Returns the cluster IP of the `i`-th Service: 11.0.0.0/8 has room for millions. */
export const clusterIP = (i: number): string => address(11, i + 1);
/** Returns the address of the `i`-th pod. */
export const podAddress = (i: number): string => address(10, i + 1);

const address = (net: number, i: number) => `${net}.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;

/** Returns the node that programs a large cluster. */
export const largeClusterNode = (): NodeView =>
  testNode({
    name: 'node-0',
    ipv6: null,
    serviceCidrs: [network('11.0.0.0/8')],
    localDetection: { mode: 'ClusterCIDR', ipv4: network('10.0.0.0/8'), ipv6: null },
  });

/** Returns the Service table of a large cluster, before its first commit. */
export function largeClusterTable(services: number, perService: number): ServiceTable {
  const table = createServiceTable(largeClusterNode());
  const cluster = largeCluster(services, perService);
  for (const service of cluster.services) table.setService(service);
  for (const slice of cluster.slices) table.setSlice(slice);
  return table;
}

/** Returns ClusterIP Services of one TCP port, each with `perService` distinct endpoints in one slice. */
export function largeCluster(services: number, perService: number): LargeCluster {
  const numbers = Array.from({ length: services }, (_, i) => i);
  return {
    services: numbers.map((i) => largeService(i)),
    slices: numbers.map((i) =>
      largeSlice(
        i,
        Array.from({ length: perService }, (_, e) => i * perService + e),
      ),
    ),
  };
}

export function largeService(i: number): ServiceObject {
  return {
    metadata: {
      namespace: `team-${i % 50}`,
      name: `service-${i}`,
      creationTimestamp: '2025-01-01T00:00:00Z',
    },
    spec: {
      type: 'ClusterIP',
      clusterIP: clusterIP(i),
      clusterIPs: [clusterIP(i)],
      ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
    },
  };
}

/** Returns the slice of the `i`-th Service with these pods. */
export function largeSlice(i: number, pods: readonly number[]): EndpointSliceObject {
  return {
    metadata: {
      namespace: `team-${i % 50}`,
      name: `service-${i}-a`,
      labels: { 'kubernetes.io/service-name': `service-${i}` },
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: pods.map((pod) => ({
      addresses: [podAddress(pod)],
      nodeName: `node-${pod % NODES}`,
      conditions: { ready: true, serving: true, terminating: false },
    })),
  };
}
