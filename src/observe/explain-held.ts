import { nameOf } from './explain-places.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Cause } from './explanation.ts';

/** The node drops new connections of a pod that has more tracked connections than its share. */
export function heldPod(view: ExplainView, { kind, pod, label }: Origin): Cause | null {
  if (kind !== 'pod' || !pod || !view.isHeld?.(nameOf(pod))) return null;
  return {
    text: `${label} has more tracked connections than its share of the node's table: its new ones are dropped`,
    object: label,
    field: null,
    fix: 'end connections of the pod (fairlead flows shows them), or raise network.maxConnectionsPerPod of the agent',
  };
}
