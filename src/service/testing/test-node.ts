import { type Cidr, parseCidr } from '../../lib/address.ts';
import type { NodeView } from '../model.ts';

/** Returns a network that is known to be valid. Throws RangeError otherwise. */
export function network(text: string): Cidr {
  const cidr = parseCidr(text);
  if (!cidr) throw new RangeError(`${text} is not a network`);
  return cidr;
}

/** Returns a dual-stack node "node-1" of zone "zone-a" that detects pods by the cluster's networks. */
export function testNode(change: Partial<NodeView> = {}): NodeView {
  return {
    name: 'node-1',
    zone: 'zone-a',
    ipv4: '192.168.0.1',
    ipv6: 'fd00:168::1',
    nodePortAddresses: { ipv4: { all: true }, ipv6: { all: true } },
    localhostNodePorts: true,
    localDetection: { mode: 'ClusterCIDR', ipv4: network('10.244.0.0/16'), ipv6: network('fd00:244::/48') },
    masqueradeAll: false,
    serviceCidrs: [network('10.96.0.0/16'), network('fd00:96::/112')],
    ownServiceAddresses: [],
    masqueradeBit: 14,
    ipvsScheduler: 'rr',
    ...change,
  };
}
