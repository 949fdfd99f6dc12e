import type { Frontend, NodeView, ServiceMap } from '../../service/model.ts';
import { cidr, endpoint, frontend, NODE, serviceMap } from './service-map.ts';

/** Returns Services that together need every chain and every kind of element that a mode has. */
export function goldenServices(change: Partial<NodeView> = {}): ServiceMap {
  const local = [endpoint('10.244.1.11', 8080), endpoint('10.244.1.12', 8080)];
  const all = [...local, endpoint('10.244.2.21', 8080, false)];
  const frontends: Frontend[] = [
    frontend({ kind: 'ClusterIP', service: 'plain', address: '10.96.0.1', port: 80, endpoints: all }),
    frontend({ kind: 'ClusterIP', service: 'empty', address: '10.96.0.2', port: 80, endpoints: [] }),
    frontend({
      kind: 'ClusterIP',
      service: 'sticky',
      address: '10.96.0.3',
      port: 53,
      protocol: 'UDP',
      endpoints: local,
      affinitySeconds: 600,
    }),
    frontend({ kind: 'NodePort', service: 'outside', address: null, port: 30080, endpoints: all }),
    frontend({
      kind: 'NodePort',
      service: 'local',
      address: null,
      port: 30081,
      endpoints: all,
      policy: 'external-local',
    }),
    frontend({
      kind: 'LoadBalancer',
      service: 'restricted',
      address: '203.0.113.1',
      port: 443,
      endpoints: all,
      policy: 'external-local',
      allowedSources: ['192.0.2.0/24', '198.51.100.7/32'],
    }),
  ];
  return serviceMap(frontends, { ...NODE, ...change });
}

/** A node with node ports on some addresses only, and pods recognized by their devices. */
export const PARTICULAR_NODE: Partial<NodeView> = {
  nodePortAddresses: { ipv4: { all: false, cidrs: [cidr('192.0.2.0/24')] }, ipv6: { all: true } },
  localDetection: { mode: 'InterfaceNamePrefix', prefix: 'veth' },
  localhostNodePorts: false,
};
