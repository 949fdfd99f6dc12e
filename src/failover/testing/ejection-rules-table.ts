import { EJECTION_RULES } from '../ejection-rules.ts';

const seconds = (ms: number): string => `${ms / 1000} s`;

/** The policy as the table of docs/failover.md: a rule, what the programs do, what the agent does. */
export function ejectionRulesTable(): string {
  const rules = EJECTION_RULES;
  const duration = `${seconds(rules.firstEjectionMs)}, each further one twice as long, at most ${rules.maxEjectionMs / 60_000} min`;
  const rows = [
    ['rule', 'BPF programs, at once', 'agent, later'],
    ['---', '---', '---'],
    [
      'decides for',
      'new connections at the sockets of this node',
      'all of this node’s traffic, in every mode',
    ],
    [
      'a connection is refused',
      'ejected',
      'the agent connects itself; ejected when it is refused or not answered either',
    ],
    [
      'a first packet counts as unanswered',
      `after ${rules.programUnansweredMs} ms, or with an ICMP error`,
      `after ${rules.agentUnansweredMs} ms (${rules.agentCheckMs} ms for its own check)`,
    ],
    [
      'ejected for connections without an answer',
      `${rules.programTimeouts}, of different sockets, at least ${rules.minFailureDistanceMs} ms apart`,
      `${rules.agentTimeouts}, of ${rules.agentClients} clients; its own check counts as a client`,
    ],
    ['failures count together within', seconds(rules.failureWindowMs), seconds(rules.failureWindowMs)],
    [
      'an answer to any client',
      'clears the failures and ends the ejection',
      'clears the failures and ends the ejection',
    ],
    ['an ejection lasts', duration, duration],
    [
      'the durations start again',
      'with the first answer',
      `after ${seconds(rules.forgiveMs)} in use without failures`,
    ],
    [
      'when the time is over',
      `one connection tests the endpoint, others avoid it for ${seconds(rules.programProbeMs)} more`,
      'the agent connects itself; after the longest ejection the next client tests the endpoint',
    ],
    [
      'limit',
      `no effect where more than half of the endpoints are ejected (of ${rules.programSample} looked at)`,
      'at most half of a Service’s endpoints, never the last one',
    ],
  ];
  return rows.map((row) => `| ${row.join(' | ')} |`).join('\n');
}
