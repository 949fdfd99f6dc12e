import type { EgressDecision } from '../egress/model.ts';
import { GATEWAY_TABLE } from '../egress/render.ts';
import { type Arrived, arriveFrom, type Destined } from './explain-arrival.ts';
import type { ExplainView } from './explain-view.ts';
import type { ExplainStep } from './explanation.ts';

/** A decision that is about an egress gateway. */
export type GatewayDecision = Exclude<EgressDecision, { readonly kind: 'stays' }>;

/** Describes the decision of an egress gateway. */
export function egressStep(decision: GatewayDecision): ExplainStep {
  const { gateway, address } = decision;
  const text =
    decision.kind === 'leaves'
      ? `leaves by node ${decision.node} with the source ${decision.address}`
      : address === null
        ? 'the gateway has no address of this family: no other one is used'
        : `waits: no node has ${address}`;
  const family = (address ?? '').includes(':') ? 'ip6' : 'ip';
  return {
    subject: 'source',
    object: `EgressGateway ${gateway}`,
    ruleOrKey:
      address === null ? null : `nft: table ${family} ${GATEWAY_TABLE}, map addresses, element ${address}`,
    text,
  };
}

/** Follows a packet from the node that translates it. */
export function leaveBy(view: ExplainView, decision: GatewayDecision, end: Destined): Arrived {
  if (decision.kind === 'leaves') return arriveFrom(view, decision.node, end);
  const { gateway, address } = decision;
  const family = end.address.includes(':') ? 'IPv6' : 'IPv4';
  const [text, field, fix] =
    address === null
      ? [
          `EgressGateway ${gateway} has no ${family} address`,
          'spec.addresses',
          `add an ${family} address, or set spec.destinationCIDRs to networks of the other family`,
        ]
      : [
          `no node has the address ${address} of EgressGateway ${gateway}`,
          'spec.nodeSelector',
          `see kubectl describe egressgateway ${gateway}: a ready node has to be selected`,
        ];
  return { arrival: 'waits', text, cause: { text, object: `EgressGateway ${gateway}`, field, fix } };
}
