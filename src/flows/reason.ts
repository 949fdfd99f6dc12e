import type { SocketAddress } from '../lib/address.ts';
import { allows } from '../policy/allows.ts';
import { type PolicyMap, policyText } from '../policy/model.ts';
import { classify } from '../service/classify.ts';
import { decide, type VerdictReason } from '../service/decide.ts';
import type { Protocol, ServiceMap } from '../service/model.ts';
import type { SeenConnection } from './connection-table.ts';
import type { FlowLineKind } from './flow-line.ts';

/** The tables by which a node handles connections; null: they are not known yet, or not used. */
export interface ReasonTables {
  readonly map: ServiceMap | null;
  readonly policies: PolicyMap | null;
}

export interface Reason {
  readonly kind: Extract<FlowLineKind, 'rejected' | 'dropped'> | null;
  readonly text: string | null;
}

/** Why the rules of a Service forward nothing. */
const TEXTS: Readonly<Partial<Record<VerdictReason, string>>> = {
  'no-endpoints': 'the Service has no ready endpoints',
  'no-local-endpoints': 'traffic policy Local, and no ready endpoint on this node',
  'source-range': 'the client is not in loadBalancerSourceRanges',
  'wrong-port': 'the Service has no such port',
  'unallocated-cluster-ip': 'no Service has this cluster IP',
  martian: 'loopback addresses are reachable on the node only',
};

/**
 * Returns why a connection failed, as the tables of its node tell: the Service's rules reject or drop it, or network policies
 * do not allow it.
 */
export function reasonOf(
  seen: Omit<SeenConnection, 'micros' | 'beganNs'>,
  { map, policies }: ReasonTables,
  protocol: 'TCP' | 'UDP' = 'TCP',
): Reason {
  const { client, destination, endpoint, outcome, isOwn, cause } = seen;
  const isTranslated = endpoint.ip !== destination.ip || endpoint.port !== destination.port;
  const unknown = { kind: null, text: outcome === 'refused' ? refusalText(cause, endpoint) : cause };
  if (outcome === 'answered' || outcome === 'reset') return unknown;
  const verdict =
    map && !isTranslated
      ? decide(map, {
          source: client.ip,
          sourceClass: classify(map.node, { source: client.ip, isNodeAddress: isOwn }),
          destination: destination.ip,
          port: destination.port,
          protocol,
        })
      : null;
  const text = verdict && TEXTS[verdict.reason];
  if (text && verdict.action === 'reject' && outcome !== 'unanswered') return { kind: 'rejected', text };
  if (text && verdict.action !== 'reject' && outcome === 'unanswered') return { kind: 'dropped', text };
  if (!policies || outcome !== 'unanswered') return unknown;
  const targets = verdict?.action === 'forward' ? verdict.candidates.map((one) => one.endpoint) : [endpoint];
  const denials = targets.flatMap(
    (target) => policyDenial({ client, endpoint: target, protocol, isOwn }, { map, policies }) ?? [],
  );
  const [first] = denials;
  if (first === undefined) return unknown;
  if (denials.length === targets.length) return { kind: 'dropped', text: first };
  return { kind: null, text: `may be denied (${denials.length} of ${targets.length} endpoints): ${first}` };
}

/** Returns why the DNS questions of a client to a server are not answered; null: the tables of the node forward them. */
export function whyUnanswered(
  client: SocketAddress,
  server: SocketAddress,
  tables: ReasonTables,
): string | null {
  const { ipv4 = null, ipv6 = null } = tables.map?.node ?? {};
  const isOwn = client.ip === ipv4 || client.ip === ipv6;
  const seen = {
    client,
    destination: server,
    endpoint: server,
    outcome: 'unanswered',
    isOwn,
    cause: null,
  } as const;
  const { kind, text } = reasonOf(seen, tables, 'UDP');
  return kind === 'dropped' ? text : null;
}

/** Words what came back from an endpoint that refuses a connection: no rule of the node does. */
export const refusalText = (cause: string | null, { port }: SocketAddress): string | null =>
  cause === 'RST' ? `RST: nothing listens on port ${port}` : cause;

export interface PolicyQuestion {
  readonly client: SocketAddress;
  readonly endpoint: SocketAddress;
  readonly protocol: Protocol;
  /** A process of this node opened the flow. */
  readonly isOwn: boolean;
}

/** Returns the policies that deny a flow, in words; null: they allow it. */
export function policyDenial(
  { client, endpoint, protocol, isOwn }: PolicyQuestion,
  { map, policies }: ReasonTables,
): string | null {
  if (!policies) return null;
  const { isAllowed, egress, ingress } = allows(policies, {
    ...{ source: client.ip, destination: endpoint.ip, port: endpoint.port, protocol },
    ...(isOwn && map ? { fromNode: map.node.name } : {}),
  });
  const { reason, direction, pod } = egress.isAllowed ? ingress : egress;
  if (isAllowed) return null;
  if (reason.kind === 'rule')
    return `${policyText(reason.policy)} (tier ${reason.tier}): rule spec.${direction}[${reason.rule}] denies it at pod ${pod}`;
  if (reason.kind !== 'no-rule') return null;
  const which = reason.policies.length === 1 ? 'NetworkPolicy' : 'NetworkPolicies';
  return `${which} ${reason.policies.join(', ')}: no ${direction} rule of pod ${pod} allows it`;
}
