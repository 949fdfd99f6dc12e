/**
 * The priorities of this project's chains, in the order in which a packet passes those of one hook. The kernel's own are raw
 * -300, connection tracking -200, destination NAT -100, filter 0, source NAT 100 (linux/netfilter_ipv4.h).
 */
export const PRIORITY = {
  /** Before the chains of all other programs. */
  first: -500,
  /** The mark of `trace`, before raw and before defragmentation (-400). */
  tracing: -450,
  /** Before connection tracking, so that dropped queries open no flows, and before the zones of the DNS fallback. */
  dnsLimit: -310,
  raw: -300,
  /** Behind connection tracking, and before Services. */
  connectionBound: -150,
  /** Before the proxy translates queries. */
  dnsFallback: -110,
  natDestination: -100,
  /** Behind Services, whose endpoints may be outside: an egress gateway sees the translated destination. */
  egressGateway: -90,
  /** Marks what this node translates itself. */
  egressHeld: -89,
  /**
   * Directly before IPVS takes packets of local processes (NF_IP_PRI_NAT_DST + 1 and + 2). Packets that it has translated pass the
   * output hook again (net/netfilter/ipvs/ip_vs_core.c).
   */
  beforeIpvsOutput: -99,
  filter: 0,
  /** Behind the policies, which drop packets without an answer. */
  unusedAddresses: 10,
  /** Before everything that masquerades: the first translation of a connection's source is the only one. */
  egressSource: 80,
  /** Before the proxy masquerades. */
  dnsFallbackSource: 90,
  /** Before IPVS, which takes packets to Services off the input hook at 98 and 99 (ip_vs_core.c), and behind it. */
  beforeIpvs: 97,
  natSource: 100,
  /** Behind masquerading. */
  masqueraded: 101,
  /** Behind every translation of sources: what may leave. */
  egressLeaving: 105,
  behindIpvs: 110,
  last: 300,
} as const;
