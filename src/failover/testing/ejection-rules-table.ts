import { EJECTION_RULES } from '../ejection-rules.ts';

const seconds = (ms: number): string => `${ms / 1000} s`;

/** Renders the policy as the table of docs/failover.md: rule, BPF programs, agent. */
export function ejectionRulesTable(): string {
  const rules = EJECTION_RULES;
  const duration = `${seconds(rules.firstEjectionMs)}, doubled by each further one, up to ${rules.maxEjectionMs / 60_000} min`;
  const rows = [
    ['rule', 'BPF programs, at once', 'agent, later'],
    ['---', '---', '---'],
    [
      'decides for',
      'new connections at the sockets of this node',
      'all of this node’s traffic, in every mode',
    ],
    ['a connection is refused', 'ejected', 'the agent connects itself; ejected if that fails too'],
    [
      'a first packet counts as unanswered',
      `after ${rules.programUnansweredMs} ms, or with an ICMP error`,
      `after ${rules.agentUnansweredMs} ms, or ${rules.earlyUnansweredMs} ms where the next SYN comes early (${rules.agentCheckMs} ms for its own check, or ${rules.earlyUnansweredMs - rules.fastAnswerMs} ms)`,
    ],
    [
      'unanswered connections that eject',
      `${rules.programTimeouts}, of different sockets, at least ${rules.minFailureDistanceMs} ms apart`,
      `${rules.agentTimeouts}, of ${rules.agentClients} clients; its own check counts as a client`,
    ],
    ['failures are counted within', seconds(rules.failureWindowMs), seconds(rules.failureWindowMs)],
    [
      'an answer to any client',
      'clears the failures and ends the ejection',
      'clears the failures and ends the ejection',
    ],
    ['duration of an ejection', duration, duration],
    [
      'the duration is reset',
      'by the first answer',
      `after ${seconds(rules.forgiveMs)} in use without failures`,
    ],
    [
      'when an ejection ends',
      `one connection tests the endpoint, others avoid it for ${seconds(rules.programProbeMs)} more`,
      'the agent connects itself; after an ejection of maximum length the next client tests the endpoint',
    ],
    [
      'limit',
      `ejections are ignored if more than half of the endpoints are ejected (in a sample of ${rules.programSample})`,
      'up to half of a Service’s endpoints, never the last one',
    ],
  ];
  return rows.map((row) => `| ${row.join(' | ')} |`).join('\n');
}
