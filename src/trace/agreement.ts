import type { ExplainStep, ExplainVerdict, Explanation } from '../observe/explanation.ts';
import { endText, type Leg } from './hops.ts';
import { NO_ANSWER, type TracedLookup } from './lookup.ts';
import type { Answer } from './outcome.ts';

/** A step of `explain`, compared with the packet. */
export interface ComparedStep {
  readonly step: ExplainStep;
  /** Null: the packet does not show it. */
  readonly isRight: boolean | null;
  /** The observation instead; null: the step is right, or the packet does not show it. */
  readonly seen: string | null;
}

export interface Agreement {
  readonly steps: readonly ComparedStep[];
  /** Null: explain could not know. */
  readonly isVerdictRight: boolean | null;
}

/** Verdicts of explain that agree with an answer. */
const AGREEING: Readonly<Record<Answer['kind'], readonly ExplainVerdict[]>> = {
  answered: ['delivered', 'partial'],
  refused: ['rejected', 'partial'],
  unreachable: ['unreachable', 'partial'],
  nothing: ['dropped', 'partial'],
};

/** Compares each step of an explanation, and its verdict, with the traced packet and with the questions before it. */
export function compare(
  explanation: Explanation,
  legs: readonly Leg[],
  answer: Answer,
  lookups: readonly TracedLookup[] = [],
): Agreement {
  const { verdict, steps } = explanation;
  // A server may take a datagram without an answer.
  const isTaken =
    verdict === 'delivered' && answer.kind === 'nothing' && arrivedEnd(explanation, legs) !== null;
  const isUdp = explanation.packet?.protocol === 'UDP';
  const isVerdictRight =
    verdict === 'unknown' ? null : AGREEING[answer.kind].includes(verdict) || (isUdp && isTaken);
  return {
    steps: steps.map((step) => ({
      step,
      ...(compareLookup(step, lookups) ?? compareStep(step, explanation, legs, isVerdictRight)),
    })),
    isVerdictRight,
  };
}

type Compared = Omit<ComparedStep, 'step'>;
const RIGHT: Compared = { isRight: true, seen: null };
const UNSEEN: Compared = { isRight: null, seen: null };
const wrong = (seen: string): Compared => ({ isRight: false, seen });

/** Compares a question of the client's resolver with the same question, asked once more; null: the step is none. */
function compareLookup({ question }: ExplainStep, lookups: readonly TracedLookup[]): Compared | null {
  const lookup = lookups.find(({ name, server }) => name === question?.name && server === question.server);
  if (!lookup) return null;
  const { answer } = lookup.trace;
  const isAnswered = answer.kind === 'answered';
  if (isAnswered === (lookup.said !== NO_ANSWER && !/^E[A-Z]/.test(lookup.said))) return RIGHT;
  return wrong(isAnswered ? 'the name server answers now' : 'the same question is not answered now');
}

function compareStep(
  step: ExplainStep,
  explanation: Explanation,
  legs: readonly Leg[],
  isVerdictRight: boolean | null,
): Compared {
  const { subject, object } = step;
  const there = legs.filter(({ way }) => way === 'there');
  const hops = there.flatMap((leg) => leg.hops);
  const byVerdict = isVerdictRight === null ? UNSEEN : isVerdictRight ? RIGHT : wrong('see the verdict');
  switch (subject) {
    case 'name':
      // The questions were asked by the real resolver, just before.
      return RIGHT;
    case 'entry': {
      const node = explanation.packet?.node ?? null;
      if (node === null || hops.length === 0) return UNSEEN;
      if (hops.some(({ place }) => place === node)) return RIGHT;
      return wrong(`not seen at ${node}`);
    }
    case 'rule':
    case 'endpoints': {
      if (explanation.endpoints.length === 0) return byVerdict;
      const reached = translatedEnd(explanation, legs);
      if (reached === null) return UNSEEN;
      const only = onlyEndpoint(step, explanation);
      if (only !== null && only !== reached) return UNSEEN;
      if (explanation.endpoints.some(({ address, port }) => endText({ ip: address, port }) === reached))
        return RIGHT;
      return wrong(`sent to ${reached}${object ? `, which is not an endpoint of ${object}` : ''}`);
    }
    case 'source': {
      const arrived = arrivedEnd(explanation, legs);
      if (arrived === null) return UNSEEN;
      const said =
        explanation.endpoints.length === 0
          ? explanation.clientSeen
          : explanation.endpoints.find(({ address }) => address === arrived.destination)?.clientSeen;
      if (!said) return UNSEEN;
      return said === arrived.source ? RIGHT : wrong(`the server sees ${arrived.source}`);
    }
    case 'policy':
    case 'arrival':
      return byVerdict;
    case 'route':
      return hops.length === 0 ? UNSEEN : RIGHT;
  }
}

/** Returns the endpoint to which a step sends the packet ("10.244.1.2:80"), if there is exactly one. */
export function onlyEndpoint({ to = [] }: ExplainStep, { endpoints }: Explanation): string | null {
  const ends = new Set(endpoints.map(({ address, port }) => endText({ ip: address, port })));
  const found = to.map(endText).filter((one) => ends.has(one));
  return found.length === 1 ? (found[0] ?? null) : null;
}

/**
 * Returns the destination after translation; null: the packet did not leave the client's own node with another destination.
 * The listener of a proxy, to which a step sends it, is not the destination.
 */
function translatedEnd({ packet, endpoints, steps }: Explanation, legs: readonly Leg[]): string | null {
  const asked = packet && endText({ ip: packet.destination, port: packet.port });
  const ends = new Set(endpoints.map(({ address, port }) => endText({ ip: address, port })));
  const named = new Set(steps.flatMap(({ to = [] }) => to.map(endText)));
  const destinations = legs
    .filter(({ way }) => way === 'there')
    .flatMap(({ hops }) => hops.map(({ destination }) => endText(destination)));
  return destinations.findLast((one) => one !== asked && (ends.has(one) || !named.has(one))) ?? null;
}

/** The addresses with which the packet arrived at the last place; null: it did not reach an endpoint. */
function arrivedEnd(
  { endpoints, packet }: Explanation,
  legs: readonly Leg[],
): { readonly source: string; readonly destination: string } | null {
  const wanted = new Set(endpoints.map(({ address }) => address));
  if (wanted.size === 0 && packet) wanted.add(packet.destination);
  const there = legs.filter(({ way }) => way === 'there');
  const last = there.flatMap(({ hops }) => hops).at(-1);
  if (last?.direction !== 'in' || !wanted.has(last.destination.ip)) return null;
  return { source: last.source.ip, destination: last.destination.ip };
}
