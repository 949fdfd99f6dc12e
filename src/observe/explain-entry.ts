import { addressLeaseMetadata, allocatedAddresses } from '../kube/load-balancer.ts';
import { familyOf } from '../lib/address.ts';
import { serviceAt } from './explain-causes.ts';
import { nameOf } from './explain-places.ts';
import type { Cause, ExplainStep, ExplainView, Origin } from './explain-view.ts';

/** How packets from outside find the node of a load-balancer address; null where nothing is known of that. */
export function entryStep(
  view: ExplainView,
  origin: Origin,
  address: string,
  node: string,
): ExplainStep | null {
  if (origin.node !== null || view.entryNode?.(address) !== node) return null;
  const how = familyOf(address) === 'ipv6' ? 'neighbour discovery' : 'ARP';
  return {
    object: leaseOf(address),
    ruleOrKey: 'spec.holderIdentity',
    text: `${node} announces ${address} by ${how}: packets from the link enter there`,
  };
}

/** Why packets from outside to one of Fairlead's load-balancer addresses enter nowhere; empty when they do, or it is none. */
export function silenceCauses(view: ExplainView, origin: Origin, address: string): Cause[] {
  const service = origin.node === null ? serviceAt(view, address) : null;
  if (!service || !allocatedAddresses(service).includes(address)) return [];
  if (!view.entryNode || view.entryNode(address) !== null) return [];
  const object = `Service ${nameOf(service)}`;
  const isLocal = service.spec?.externalTrafficPolicy === 'Local';
  return [
    {
      text: isLocal
        ? `only nodes with a ready endpoint of ${object} announce ${address}, and none of them does`
        : `no node announces ${address}`,
      object,
      field: isLocal ? 'spec.externalTrafficPolicy' : 'status.conditions',
      fix: isLocal
        ? 'let a pod of the Service become ready, or set externalTrafficPolicy: Cluster'
        : 'look whether a node is Ready, runs an agent with loadBalancer configured, and is not labelled node.kubernetes.io/exclude-from-external-load-balancers',
    },
  ];
}

const leaseOf = (address: string) => `Lease kube-system/${addressLeaseMetadata(address).name}`;
