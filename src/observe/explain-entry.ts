import { addressLeaseMetadata, allocatedAddresses } from '../kube/load-balancer.ts';
import { familyOf } from '../lib/address.ts';
import { serviceAt } from './explain-causes.ts';
import { nameOf } from './explain-places.ts';
import type { Cause, ExplainStep, ExplainView, Origin } from './explain-view.ts';

/** Describes how packets from outside reach the node of a load-balancer address; null: unknown. */
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

/** Returns the reasons why packets from outside do not reach any node for one of Fairlead's load-balancer addresses. */
export function silenceCauses(view: ExplainView, origin: Origin, address: string): Cause[] {
  const service = origin.node === null ? serviceAt(view, address) : null;
  if (!service || !allocatedAddresses(service).includes(address)) return [];
  if (!view.entryNode || view.entryNode(address) !== null) return [];
  const object = `Service ${nameOf(service)}`;
  const isLocal = service.spec?.externalTrafficPolicy === 'Local';
  return [
    {
      text: isLocal
        ? `no node announces ${address}: only nodes with a ready endpoint of ${object} may do so`
        : `no node announces ${address}`,
      object,
      field: isLocal ? 'spec.externalTrafficPolicy' : 'status.conditions',
      fix: isLocal
        ? 'make a pod of the Service ready, or set externalTrafficPolicy: Cluster'
        : 'check that a node is Ready, runs an agent with loadBalancer configured, and does not have the label node.kubernetes.io/exclude-from-external-load-balancers',
    },
  ];
}

const leaseOf = (address: string) => `Lease kube-system/${addressLeaseMetadata(address).name}`;
