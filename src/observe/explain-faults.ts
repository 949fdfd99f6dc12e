import type { Pod } from '../kube/types.ts';
import { nameOf, placeOfPod } from './explain-places.ts';
import type { ExplainView } from './explain-view.ts';
import type { Cause } from './explanation.ts';

/** The causes of failures that a user has planted with `fairlead fault`; see planted-faults.ts. */

const FIX = 'fairlead fault undo';

/** Returns the planted fault of a pod that gets no packets; null if it has none. */
export function podFault(view: ExplainView, pod: Pod): Cause | null {
  const place = placeOfPod(pod);
  // A pod of the host network has no namespace of its own to plant a fault in.
  if (place?.kind !== 'pod' || view.facts.fault(place) !== true) return null;
  const name = nameOf(pod);
  return {
    text: `a planted fault silences pod ${name}: it gets no packets`,
    object: `Pod ${name}`,
    field: null,
    fix: FIX,
  };
}

/**
 * Returns the planted fault on the way from one node to another, or to a host that is not a node (null); null if there is
 * none, or the packet stays on its node.
 */
export function linkFault(view: ExplainView, from: string | null, to: string | null): Cause | null {
  if (from === to) return null;
  const cut = [from, to].find((node) => node !== null && view.facts.fault({ kind: 'node', node }) === true);
  if (cut === undefined) return null;
  return {
    text: `a planted fault cuts the uplink of ${cut}`,
    object: `Node ${cut}`,
    field: null,
    fix: FIX,
  };
}
