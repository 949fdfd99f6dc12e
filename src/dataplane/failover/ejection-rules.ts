/**
 * The numbers of the one ejection policy, in milliseconds where the name says so. Two parties follow it: the BPF
 * programs of the eBPF mode, at once and for new connections at sockets only, and the agent (`ejection-policy.ts`) in
 * every mode, later and for the whole node. tools/build-bpf.mjs writes them to bpf/ejection-rules.h for the programs.
 */
export const EJECTION_RULES = {
  /** Failures count together within this time. */
  failureWindowMs: 10_000,
  /** Unanswered connections that eject: as the programs see them, of different sockets … */
  programTimeouts: 2,
  /** … and at least this far apart: a machine that pauses causes many at once. */
  minFailureDistanceMs: 50,
  /** As the agent sees them … */
  agentTimeouts: 3,
  /** … of at least so many clients; its own check counts as one. */
  agentClients: 2,
  /** How long a first ejection lasts; each further one in a row lasts twice as long. */
  firstEjectionMs: 5_000,
  maxEjectionMs: 300_000,
  /** An endpoint in use for this long since its return starts again with `firstEjectionMs`. */
  forgiveMs: 60_000,
  /** How long other new connections wait for the one that tests an endpoint whose time is over. */
  programProbeMs: 1_000,
  /** How long the agent's own check waits for an answer. */
  agentCheckMs: 200,
  /** Until the first packet of a connection counts as unanswered: at sockets with the programs … */
  programUnansweredMs: 100,
  /** … and by connection tracking: between a round trip within a cluster and the client's second SYN after a second. */
  agentUnansweredMs: 300,
  /** How often the programs send the first packet of one connection to another endpoint. */
  maxReroutes: 4,
  /** How many endpoints the programs look at to find one that is not ejected. */
  programSample: 8,
} as const;

type Rules = typeof EJECTION_RULES;

/** The rules that the programs are compiled with, as a C header. */
export function ejectionRulesHeader(): string {
  const used: readonly (keyof Rules)[] = [
    'failureWindowMs',
    'minFailureDistanceMs',
    'firstEjectionMs',
    'maxEjectionMs',
    'programProbeMs',
    'maxReroutes',
    'programSample',
  ];
  const lines = used.map((name) => {
    const constant = name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
    return `#define ${constant} ${EJECTION_RULES[name]}`;
  });
  return `/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Written by tools/build-bpf.mjs from src/dataplane/failover/ejection-rules.ts; do not edit. */
#pragma once

${lines.join('\n')}
`;
}

const seconds = (ms: number): string => `${ms / 1000} s`;

/** The policy as the table of docs/failover.md: a rule, what the programs do, what the agent does. */
export function ejectionRulesTable(rules: Rules = EJECTION_RULES): string {
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
