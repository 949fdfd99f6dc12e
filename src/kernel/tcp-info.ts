import { libc, systemError } from './libc.ts';

const IPPROTO_TCP = 6;
const TCP_INFO = 11;
// Offsets in struct tcp_info (linux/tcp.h).
const UNACKNOWLEDGED_AT = 24;
const RTT_AT = 68;
const TOTAL_RETRANSMITS_AT = 100;
const LENGTH = 104;

/** The kernel's state of a connection. */
export interface TcpInfo {
  /**
   * Smoothed round-trip time in microseconds; 0: not measured. Based on timestamps, so valid with
   * retransmissions too.
   */
  readonly rtt: number;
  /** Retransmitted segments, including the first one (SYN). */
  readonly retransmits: number;
  /** Of a listener: the connections that wait to be accepted (tcp_get_info in net/ipv4/tcp.c). */
  readonly unaccepted: number;
}

/** Reads TCP_INFO of a socket. Throws FairleadError with the kernel's errno. */
export function tcpInfo(fd: number): TcpInfo {
  const bytes = new Uint8Array(LENGTH);
  const length = Uint8Array.of(LENGTH, 0, 0, 0);
  if (libc().getsockopt(fd, IPPROTO_TCP, TCP_INFO, bytes, length) !== 0) throw systemError('read TCP_INFO');
  const view = new DataView(bytes.buffer);
  const isLittleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
  return {
    unaccepted: view.getUint32(UNACKNOWLEDGED_AT, isLittleEndian),
    rtt: view.getUint32(RTT_AT, isLittleEndian),
    retransmits: view.getUint32(TOTAL_RETRANSMITS_AT, isLittleEndian),
  };
}
