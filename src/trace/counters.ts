/** Kernel counters of a network namespace that show why packets end there: /proc/net/snmp, snmp6 and netstat. */

/** By name: "Tcp OutRsts". */
export type Counters = ReadonlyMap<string, number>;

export interface MovedCounter {
  readonly place: string;
  readonly name: string;
  readonly by: number;
  /** The packets that it counts. */
  readonly text: string;
}

/** Counters that move when a packet is not delivered (snmp_counter.rst of the kernel's documentation). */
const MEANINGS: Readonly<Record<string, string>> = {
  'Ip InHdrErrors': 'packets with a wrong IP header',
  'Ip InAddrErrors': 'packets with an address that is not valid here',
  'Ip InDiscards': 'received packets dropped for lack of memory',
  'Ip OutDiscards': 'packets that the rules dropped on their way out, or for lack of memory',
  'Ip OutNoRoutes': 'packets without a route',
  'IpExt InNoRoutes': 'received packets without a route',
  'Icmp OutDestUnreachs': 'ICMP "unreachable" sent',
  'Tcp OutRsts': 'resets sent',
  'Tcp AttemptFails': 'connections that failed to open',
  'Tcp InErrs': 'segments with errors',
  'Udp NoPorts': 'datagrams to a port where no process listens',
  'Udp InErrors': 'datagrams that could not be received',
  'Udp RcvbufErrors': 'datagrams dropped because the socket was full',
  'TcpExt ListenOverflows': 'connections dropped because the queue of the listening socket was full',
  'TcpExt ListenDrops': 'connections dropped at a listening socket',
  'TcpExt IPReversePathFilter': 'packets dropped by the reverse path filter (rp_filter)',
  'TcpExt TCPMD5NotFound': 'segments without the expected signature',
  Ip6InNoRoutes: 'received packets without a route (IPv6)',
  Ip6OutNoRoutes: 'packets without a route (IPv6)',
  Ip6InAddrErrors: 'packets with an address that is not valid here (IPv6)',
  Ip6InDiscards: 'received packets dropped (IPv6)',
  Ip6OutDiscards: 'packets dropped on their way out (IPv6)',
  Icmp6OutDestUnreachs: 'ICMPv6 "unreachable" sent',
  Udp6NoPorts: 'datagrams to a port where no process listens (IPv6)',
  Udp6InErrors: 'datagrams that could not be received (IPv6)',
};

const POLICY_MEANING = 'packets that network policies denied';

/** The name of the counter of a chain of the network policies. */
export const policyCounter = (table: string, chain: string) => `nft table ${table}, chain ${chain}`;

/** Reads /proc/net/snmp or netstat: pairs of lines, names and values, with a common prefix. */
export function readCounterPairs(text: string): Map<string, number> {
  const counters = new Map<string, number>();
  const lines = text.split('\n');
  for (let i = 0; i + 1 < lines.length; i += 2) {
    const [head = '', ...names] = (lines[i] ?? '').split(/\s+/);
    const [, ...values] = (lines[i + 1] ?? '').split(/\s+/);
    for (const [at, name] of names.entries())
      if (name !== '') counters.set(`${head.replace(/:$/, '')} ${name}`, Number(values[at] ?? 0));
  }
  return counters;
}

/** Reads /proc/net/snmp6: a name and a value a line. */
export function readCounterLines(text: string): Map<string, number> {
  const counters = new Map<string, number>();
  for (const line of text.split('\n')) {
    const [name, value] = line.trim().split(/\s+/);
    if (name && value !== undefined) counters.set(name, Number(value));
  }
  return counters;
}

/** Returns the counters of undelivered packets that rose between two readings at a place. */
export function movedCounters(place: string, before: Counters, after: Counters): MovedCounter[] {
  return [...after].flatMap(([name, value]) => {
    const by = value - (before.get(name) ?? 0);
    const text = MEANINGS[name] ?? (name.startsWith('nft ') ? POLICY_MEANING : null);
    return by > 0 && text !== null ? [{ place, name, by, text }] : [];
  });
}
