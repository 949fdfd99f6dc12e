/**
 * How a connection, a datagram or a lookup of a name ends: the words that `explain`, `trace`, `flows`, `check`, the page and
 * docs/glossary.md use, each with its meaning.
 */
export const OUTCOMES = {
  delivered:
    'it was accepted: a process answered the connection, or takes the datagram; a lookup found records',
  rejected:
    'a reset or an ICMP error came back at once, from an endpoint or from a rule; a DNS server answered with an error',
  dropped: 'no answer, and what dropped it is known: a rule, a NetworkPolicy, a planted fault',
  'no-answer': 'no answer, and no reason is known',
  unreachable: 'there is no route, or no such host',
  reset: 'one end reset an established connection',
  stalled: 'an established connection does not go on: full packets are sent again without an acknowledgment',
  'not-found': 'the name does not exist, or has no such record',
} as const;

export type OutcomeWord = keyof typeof OUTCOMES;

/** The word as a heading: "NO ANSWER". */
export const outcomeHeading = (word: OutcomeWord): string => word.replaceAll('-', ' ').toUpperCase();
