import { randomUUID } from 'node:crypto';
import type { EndpointSlice, Node, Service } from '../src/kube/types.ts';

const NODES = 5000;
const ZONES = 3;
/** A slice holds this many endpoints, as those of the EndpointSlice controller. */
const SLICE = 100;

/** The node on which the proxies run. */
export const NODE: Node = {
  metadata: { name: 'node-0', labels: { 'topology.kubernetes.io/zone': 'zone-0' } },
};

/** A Service of the cluster: its number, and those of its pods. */
export interface ScaleService {
  readonly number: number;
  readonly pods: readonly number[];
  /** Every fourth Service sends traffic to the zone of the client. */
  readonly hasHints: boolean;
}

/** Returns `count` Services with about `endpoints` endpoints in all: two with 5,000 and 1,000, the others with equally many. */
export function scaleServices(count: number, endpoints: number): ScaleService[] {
  const large = [5000, 1000].filter(() => endpoints >= 50_000);
  const left = endpoints - large.reduce((sum, one) => sum + one, 0);
  let next = 0;
  return Array.from({ length: count }, (_, number) => {
    const others = count - large.length;
    const rank = number - large.length;
    const size =
      large[number] ?? Math.floor(((rank + 1) * left) / others) - Math.floor((rank * left) / others);
    const first = next;
    next += size;
    return {
      number,
      pods: Array.from({ length: size }, (_, index) => first + index),
      hasHints: number % 4 === 3,
    };
  });
}

const nameOf = (number: number) => ({ namespace: `team-${number % 50}`, name: `service-${number}` });

/** Returns the Service object. */
export function serviceObject({ number, hasHints }: ScaleService): Service {
  return {
    metadata: { ...nameOf(number), labels: { app: `service-${number}`, tier: 'backend' } },
    spec: {
      selector: { app: `service-${number}` },
      ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 'http' }],
      ...(hasHints ? { trafficDistribution: 'PreferSameZone' } : {}),
    },
  };
}

/** Returns the slices of a Service. `replacement`: the address of a new pod in place of the first one of the first slice. */
export function sliceObjects(
  { number, pods, hasHints }: ScaleService,
  owner: Service,
  replacement: string | null = null,
): EndpointSlice[] {
  const { namespace, name } = nameOf(number);
  const endpoint = (pod: number, address: string): EndpointSlice['endpoints'][number] => {
    const zone = `zone-${pod % ZONES}`;
    return {
      addresses: [address],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: `node-${pod % NODES}`,
      zone,
      ...(hasHints ? { hints: { forZones: [{ name: zone }] } } : {}),
      targetRef: {
        kind: 'Pod',
        namespace,
        name: `${name}-6d4cf56db6-${(pod % 46656).toString(36).padStart(5, 'x')}`,
        uid: randomUUID(),
      },
    };
  };
  return Array.from({ length: Math.max(1, Math.ceil(pods.length / SLICE)) }, (_, index) => ({
    metadata: {
      namespace,
      name: `${name}-${index}`,
      labels: {
        'kubernetes.io/service-name': name,
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        app: name,
        tier: 'backend',
      },
      annotations: {
        'endpoints.kubernetes.io/last-change-trigger-time': `${new Date().toISOString().slice(0, 19)}Z`,
      },
      ownerReferences: [
        {
          apiVersion: 'v1',
          kind: 'Service',
          name,
          uid: owner.metadata?.uid ?? '',
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
    },
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: pods.slice(index * SLICE, (index + 1) * SLICE).map((pod, at) =>
      // The replacement is on another node in the zone of the measured node, where it is used.
      replacement !== null && index === 0 && at === 0
        ? endpoint(ZONES * (1 + (number % 1000)), replacement)
        : endpoint(pod, podAddress(pod)),
    ),
  }));
}

const podAddress = (pod: number) => `10.${128 + ((pod >> 16) & 63)}.${(pod >> 8) & 255}.${pod & 255}`;
