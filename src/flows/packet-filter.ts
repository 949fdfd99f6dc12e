import { createFilterProgram, ETHERNET, findTransport, OP } from '../kernel/filter-program.ts';
import { IP_PROTOCOL, TCP_FLAG } from '../kernel/packet.ts';
import type { FilterInstruction } from '../kernel/socket-filter.ts';

const { LD, RET, WORD, HALF, BYTE, ABS, IND, MEM, JEQ, JGE, JSET } = OP;

const PROTOCOL_CELL = 0;
const DNS_PORT = 53;
/** Ports below are servers' (RFC 6335). */
const FIRST_CLIENT_PORT = 1024;
/** Kernels prefer local ports of one parity (inet_hash_connect): the lowest bit would not sample evenly. */
const SKIPPED_BITS = 1;

/**
 * Renders a classic BPF program for Ethernet frames that lets through what shows the outcome of connections and DNS
 * questions: SYN, SYN-ACK, RST, ICMP errors, and datagrams of port 53, of IPv4 and IPv6 without extension headers. `sample`:
 * a power of two; connections and questions pass only if the client's port is one of this many. A RST does not show which port
 * is the client's: it passes if either may be. ICMP errors always pass.
 */
export function connectionFilter(sample: number, snapBytes: number): FilterInstruction[] {
  const program = createFilterProgram();
  const { add, jumpIf, jump, label } = program;
  const mask = (sample - 1) << SKIPPED_BITS;
  const passIfSampled = (portAt: number) => {
    if (mask === 0) return jump('pass');
    add(LD | HALF | IND, ETHERNET + portAt);
    jumpIf(JSET, mask, 'drop', 'pass');
  };
  findTransport(program, PROTOCOL_CELL);
  add(LD | MEM, PROTOCOL_CELL);
  jumpIf(JEQ, IP_PROTOCOL.tcp, 'tcp', null);
  jumpIf(JEQ, IP_PROTOCOL.udp, 'udp', null);
  jumpIf(JEQ, IP_PROTOCOL.icmp, 'icmp', null);
  jumpIf(JEQ, IP_PROTOCOL.icmp6, null, 'drop');
  add(LD | BYTE | IND, ETHERNET);
  jumpIf(JGE, 128, 'drop', 'pass');
  label('icmp');
  add(LD | BYTE | IND, ETHERNET);
  jumpIf(JEQ, 3, 'pass', null);
  jumpIf(JEQ, 11, 'pass', 'drop');
  label('tcp');
  add(LD | BYTE | IND, ETHERNET + 13);
  jumpIf(JSET, TCP_FLAG.rst, 'reset', null);
  jumpIf(JSET, TCP_FLAG.syn, null, 'drop');
  jumpIf(JSET, TCP_FLAG.ack, 'to-client', 'from-client');
  label('udp');
  add(LD | HALF | IND, ETHERNET + 2);
  jumpIf(JEQ, DNS_PORT, 'from-client', null);
  add(LD | HALF | IND, ETHERNET);
  jumpIf(JEQ, DNS_PORT, 'to-client', 'drop');
  label('reset');
  for (const portAt of mask === 0 ? [] : [0, 2]) {
    add(LD | HALF | IND, ETHERNET + portAt);
    jumpIf(JGE, FIRST_CLIENT_PORT, null, `no client ${portAt}`);
    jumpIf(JSET, mask, null, 'pass');
    label(`no client ${portAt}`);
  }
  jump(mask === 0 ? 'pass' : 'drop');
  label('from-client');
  passIfSampled(0);
  label('to-client');
  passIfSampled(2);
  label('drop');
  add(RET, 0);
  label('pass');
  add(RET, snapBytes);
  return program.build();
}

/** The least size of a full packet: IPv6 needs as much of every link, less options of TCP. */
const MIN_FULL_BYTES = 1200;

/**
 * Renders a program that lets through single TCP segments whose packets have at least MIN_FULL_BYTES and at most `mostBytes`: what
 * a sender hands over at once in more bytes is not sent again as it is. `sample`: as above, by the sequence number, which a segment
 * keeps when it is sent again.
 */
export function fullSegmentFilter(mostBytes: number, sample: number, snapBytes: number): FilterInstruction[] {
  const program = createFilterProgram();
  const { add, jumpIf, label } = program;
  const IPV6_HEADER = 40;
  findTransport(program, PROTOCOL_CELL);
  add(LD | MEM, PROTOCOL_CELL);
  jumpIf(JEQ, IP_PROTOCOL.tcp, null, 'drop');
  add(LD | HALF | ABS, 12);
  jumpIf(JEQ, 0x86dd, 'length-6', null);
  add(LD | HALF | ABS, ETHERNET + 2);
  jumpIf(JGE, MIN_FULL_BYTES, null, 'drop');
  jumpIf(JGE, mostBytes + 1, 'drop', 'segment');
  label('length-6');
  add(LD | HALF | ABS, ETHERNET + 4);
  jumpIf(JGE, MIN_FULL_BYTES - IPV6_HEADER, null, 'drop');
  jumpIf(JGE, mostBytes + 1 - IPV6_HEADER, 'drop', null);
  label('segment');
  if (sample > 1) {
    add(LD | WORD | IND, ETHERNET + 4);
    jumpIf(JSET, sample - 1, 'drop', null);
  }
  add(LD | BYTE | IND, ETHERNET + 13);
  jumpIf(JSET, TCP_FLAG.syn | TCP_FLAG.rst, 'drop', 'pass');
  label('drop');
  add(RET, 0);
  label('pass');
  add(RET, snapBytes);
  return program.build();
}
