/**
 * The constants of the ejection policy; names in Ms are milliseconds. Two parties apply it: the BPF programs of the eBPF
 * mode, at once and only for new connections at sockets, and the agent (`ejection-policy.ts`) in every mode, later and
 * for the whole node. tools/build-bpf.mjs writes the programs' constants to bpf/ejection-rules.h;
 * docs/failover.md has the whole policy as a table, which a test compares.
 */
export const EJECTION_RULES = {
  /** The window in which failures are counted. */
  failureWindowMs: 10_000,
  /** Unanswered connections that eject: for the programs, of different sockets … */
  programTimeouts: 2,
  /** … and at least this far apart: a machine that pauses causes many at once. */
  minFailureDistanceMs: 50,
  /** For the agent … */
  agentTimeouts: 3,
  /** … of at least so many clients; its own check counts as one. */
  agentClients: 2,
  /** The duration of the first ejection; each further consecutive one is twice as long. */
  firstEjectionMs: 5_000,
  maxEjectionMs: 300_000,
  /** After this time in use since its return, an endpoint starts again with `firstEjectionMs`. */
  forgiveMs: 60_000,
  /** How long other new connections still avoid an endpoint while one connection tests it. */
  programProbeMs: 1_000,
  /** How long the agent's own check waits for an answer. */
  agentCheckMs: 200,
  /** The time until the first packet of a connection counts as unanswered: for the programs at sockets … */
  programUnansweredMs: 100,
  /** … and by connection tracking: between a round trip within a cluster and the client's second SYN after a second. */
  agentUnansweredMs: 300,
  /**
   * The same where the client retransmits its SYN after `programUnansweredMs` too, and the endpoint answers fast: so that
   * the entry is deleted before that.
   */
  earlyUnansweredMs: 70,
  /** An endpoint answers fast if within this time. Without an answer for so long, the agent begins its own check. */
  fastAnswerMs: 25,
  /** The maximum number of reroutes of one connection. */
  maxReroutes: 4,
  /** The number of endpoints that the programs try to find one that is not ejected. */
  programSample: 8,
} as const;
