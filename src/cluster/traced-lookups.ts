import { familyOf, type IPFamily } from '../lib/address.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { End } from '../trace/hops.ts';
import type { TracedLookup } from '../trace/lookup.ts';
import type { DnsQuestion } from '../trace/observation.ts';
import type { TraceResult } from '../trace/trace.ts';

/** The most questions that are sent again to be traced; a search path has rarely more. */
export const MAX_LOOKUPS = 8;
const DNS_PORT = 53;

/** Returns true if a name was resolved by questions to name servers. */
export const hasQuestions = ({ steps }: Explanation): boolean =>
  steps.some(({ question }) => question !== undefined);

/**
 * Sends the questions that the resolver of the client has just asked once more, one after the other, and traces each. They are the
 * steps of `explain` for a name; none for other targets.
 */
export async function traceLookups(
  explanation: Explanation,
  family: IPFamily | null,
  send: (destination: End, question: DnsQuestion) => Promise<TraceResult>,
): Promise<TracedLookup[]> {
  const { packet, steps } = explanation;
  const wanted = packet === null ? family : familyOf(packet.destination);
  const type = wanted === 'ipv6' ? 'AAAA' : 'A';
  const lookups: TracedLookup[] = [];
  for (const { question } of steps) {
    if (question === undefined || lookups.length === MAX_LOOKUPS) continue;
    const { name, server, result: said } = question;
    const trace = await send({ ip: server, port: DNS_PORT }, { name, type });
    lookups.push({ name, type, server, said, trace });
  }
  return lookups;
}
