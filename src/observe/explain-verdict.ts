import type { Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import type { Verdict } from '../service/decide.ts';
import type { Protocol } from '../service/model.ts';
import type { Arrival, ExplainVerdict } from './explanation.ts';

export interface Outcome {
  readonly verdict: ExplainVerdict;
  readonly reason: string;
}

const VERDICTS: Readonly<Record<Arrival, ExplainVerdict>> = {
  answered: 'delivered',
  refused: 'rejected',
  'queue-full': 'dropped',
  'no-host': 'unreachable',
  'reply-lost': 'dropped',
  denied: 'dropped',
  filtered: 'dropped',
  'filtered-rejected': 'rejected',
  waits: 'dropped',
  fault: 'dropped',
  unreachable: 'unreachable',
  unknown: 'unknown',
};

const REASONS: Readonly<Record<Arrival, string>> = {
  answered: 'forwarded to an endpoint of the Service, where a process accepts it',
  refused: 'no process accepts it: rejected',
  'queue-full': 'the queue of the server is full: dropped without an answer',
  'no-host': 'no host has the address: reported as unreachable, after 3 seconds at most',
  'reply-lost': 'an endpoint replies, but the client drops the replies',
  denied: 'denied by network policies: dropped without an answer',
  filtered: 'a rule of another program drops it without an answer',
  'filtered-rejected': 'a rule of another program rejects it',
  waits: 'no node has the address of its egress gateway: dropped without an answer',
  fault: 'dropped by a planted fault, without an answer',
  unreachable: 'there is no route to it',
  unknown: 'the outcome at the destination is not known',
};

/** Combines the outcomes at all possible destinations; `mode`: the mode of the node for a Service, else null. */
export function outcomeOf(arrivals: readonly Arrival[], mode: Mode | null, protocol: Protocol): Outcome {
  const kinds = [...new Set(arrivals)];
  const [first = 'unknown'] = kinds;
  const isProxied = mode !== null && modeDiffers(mode, 'server-sees-node');
  if (isProxied) return ofProxied(kinds, protocol);
  const verdicts = new Set(kinds.map((kind) => VERDICTS[kind]));
  if (verdicts.size === 1) return { verdict: VERDICTS[first], reason: REASONS[first] };
  if (verdicts.has('unknown')) return { verdict: 'unknown', reason: REASONS.unknown };
  const good = arrivals.filter((arrival) => arrival === 'answered').length;
  if (good > 0) {
    const reason = `${good} of ${arrivals.length} endpoints accept it`;
    return { verdict: 'partial', reason };
  }
  const worst = kinds.find((kind) => kind === 'refused') ?? first;
  return { verdict: VERDICTS[worst], reason: REASONS[worst] };
}

/**
 * A proxy accepts the client's connection before it connects to an endpoint, unless network policies deny all of them: if
 * one endpoint fails it tries the next, and if all fail it resets the client's connection. It does not answer datagrams
 * that no endpoint accepts.
 */
function ofProxied(kinds: readonly Arrival[], protocol: Protocol): Outcome {
  if (kinds.includes('unknown')) return { verdict: 'unknown', reason: REASONS.unknown };
  if (kinds.every((kind) => kind === 'answered')) return { verdict: 'delivered', reason: REASONS.answered };
  if (kinds.every((kind) => kind === 'denied')) return { verdict: 'dropped', reason: REASONS.denied };
  if (protocol !== 'TCP') {
    return kinds.includes('answered')
      ? { verdict: 'partial', reason: 'some endpoints accept it, others do not' }
      : { verdict: 'dropped', reason: 'no endpoint accepts it, and the proxy does not answer' };
  }
  if (kinds.includes('answered')) {
    return { verdict: 'delivered', reason: 'the proxy tries the next endpoint if one fails' };
  }
  return {
    verdict: 'rejected',
    reason: 'the proxy accepts the connection and resets it: no endpoint accepts it',
  };
}

/** Describes the decision of the forwarding table. */
export function verdictReason({ reason }: Verdict): string {
  switch (reason) {
    case 'forwarded':
      return REASONS.answered;
    case 'no-endpoints':
      return 'the Service has no usable endpoint: rejected at once';
    case 'no-local-endpoints':
      return 'the Service has endpoints, but none on this node: dropped without an answer';
    case 'source-range':
      return 'this source is not in loadBalancerSourceRanges: dropped without an answer';
    case 'wrong-port':
      return 'a cluster IP, but not a port of its Service: rejected at once';
    case 'unallocated-cluster-ip':
      return 'an address of the Service network without a Service: dropped without an answer';
    case 'own-service-address':
      return 'an address of the node, which answers itself';
    case 'martian':
      return 'a loopback address from another host: dropped without an answer';
    case 'no-service':
      return 'no Service is involved';
  }
}
