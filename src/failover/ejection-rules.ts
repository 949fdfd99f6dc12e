/**
 * The numbers of the one ejection policy, in milliseconds where the name says so. Two parties follow it: the BPF programs
 * of the eBPF mode, at once and for new connections at sockets only, and the agent (`ejection-policy.ts`) in every mode,
 * later and for the whole node. tools/build-bpf.mjs writes those of the programs to bpf/ejection-rules.h;
 * docs/failover.md has the whole policy as a table, which a test compares.
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
