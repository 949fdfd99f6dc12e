import type { Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import type { Verdict } from '../service/decide.ts';
import type { Protocol } from '../service/model.ts';
import type { Arrival, ExplainVerdict } from './explain-view.ts';

export interface Outcome {
  readonly verdict: ExplainVerdict;
  readonly reason: string;
}

const VERDICTS: Readonly<Record<Arrival, ExplainVerdict>> = {
  answered: 'delivered',
  refused: 'rejected',
  unanswered: 'dropped',
  denied: 'dropped',
  unreachable: 'unreachable',
  unknown: 'unknown',
};

const REASONS: Readonly<Record<Arrival, string>> = {
  answered: 'an endpoint of the Service takes it',
  refused: 'it arrives, but nothing takes it: refused',
  unanswered: 'nothing has the address: no answer',
  denied: 'network policies do not allow it: dropped without an answer',
  unreachable: 'there is no route to it',
  unknown: 'what it meets there is not known',
};

/** What the client meets, given what each place that the flow may go to does; `mode`: of the proxy between; null: none. */
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
    const reason = `${good} of ${arrivals.length} endpoints take it, the others do not`;
    return { verdict: 'partial', reason };
  }
  const worst = kinds.find((kind) => kind === 'refused') ?? first;
  return { verdict: VERDICTS[worst], reason: REASONS[worst] };
}

/**
 * A proxy has accepted the client's connection before it connects to an endpoint: it takes the next where one fails, and
 * resets the client's connection where all do. It has no answer for a datagram that nothing takes.
 */
function ofProxied(kinds: readonly Arrival[], protocol: Protocol): Outcome {
  if (kinds.includes('unknown')) return { verdict: 'unknown', reason: REASONS.unknown };
  if (kinds.every((kind) => kind === 'answered')) return { verdict: 'delivered', reason: REASONS.answered };
  if (protocol !== 'TCP') {
    return kinds.includes('answered')
      ? { verdict: 'partial', reason: 'some endpoints take it, others do not' }
      : { verdict: 'dropped', reason: 'no endpoint takes it, which the proxy does not pass on: no answer' };
  }
  if (kinds.includes('answered')) {
    return { verdict: 'delivered', reason: 'the proxy takes the next endpoint where one fails' };
  }
  if (kinds.some((kind) => kind === 'unanswered' || kind === 'denied')) {
    return { verdict: 'dropped', reason: 'the proxy accepts the connection, and no endpoint answers' };
  }
  return {
    verdict: 'rejected',
    reason: 'the proxy accepts the connection, and resets it: no endpoint takes it',
  };
}

/** Why the forwarding table itself ends a flow. */
export function verdictReason({ reason }: Verdict): string {
  switch (reason) {
    case 'forwarded':
      return REASONS.answered;
    case 'no-endpoints':
      return 'the Service has no endpoint that can serve: refused at once';
    case 'no-local-endpoints':
      return 'the Service has endpoints, but none on this node: dropped without an answer';
    case 'source-range':
      return 'the load balancer does not admit this source: dropped without an answer';
    case 'wrong-port':
      return 'a cluster IP, but not a port of its Service: refused at once';
    case 'unallocated-cluster-ip':
      return "an address of the Services' network without a Service: dropped without an answer";
    case 'own-service-address':
      return 'an address that the node answers itself';
    case 'martian':
      return 'a loopback address, from elsewhere: dropped without an answer';
    case 'no-service':
      return 'no Service is involved';
  }
}
