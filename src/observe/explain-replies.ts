import type { Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import type { VerdictCandidate } from '../service/decide.ts';
import type { ServiceMap } from '../service/model.ts';
import type { Arrived, Destined } from './explain-arrival.ts';
import { nameOf } from './explain-places.ts';
import type { Origin } from './explain-view.ts';

/**
 * Reports whether replies bypass the node that translated the destination: those to a pod of another node, which nodes
 * route to it directly, if neither its address was masqueraded nor the endpoint is on that node.
 */
export function isReplyLost(
  origin: Origin,
  map: ServiceMap,
  mode: Mode | null,
  candidate: VerdictCandidate | undefined,
  endpointNode: string | null,
): boolean {
  if (candidate === undefined || origin.kind !== 'pod' || origin.node === map.node.name) return false;
  if (mode !== null && modeDiffers(mode, 'server-sees-node')) return false;
  return !candidate.masquerade && endpointNode !== map.node.name;
}

/** Returns the outcome at an endpoint whose replies are lost. */
export function replyLost(map: ServiceMap, arrived: Arrived, { address, service }: Destined): Arrived {
  if (arrived.arrival !== 'answered') return arrived;
  const { name } = map.node;
  const text = `${address} replies to the client directly, not through ${name}, which translated the destination`;
  return {
    arrival: 'reply-lost',
    text,
    cause: {
      text,
      object: service ? `Service ${nameOf(service)}` : null,
      field: 'spec.externalTrafficPolicy',
      fix: 'use the cluster IP, or a node with a ready endpoint',
    },
  };
}
