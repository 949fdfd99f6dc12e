import { libc, systemError } from './libc.ts';

// bits/socket.h
const AF_UNSPEC = 0;
const MSG_PEEK = 0x02;
const MSG_DONTWAIT = 0x40;
/** struct sockaddr_in6; sockaddr_in is shorter. */
const ADDRESS_BYTES = 28;
const PEEK_BYTES = 512;

/**
 * Makes the kernel find a bound UDP socket for no sender, by connecting it to itself: as if there were no socket. What it
 * has received can still be read and answered.
 */
export function pauseReception(fd: number): void {
  const address = new Uint8Array(ADDRESS_BYTES);
  const length = Uint8Array.of(ADDRESS_BYTES, 0, 0, 0);
  if (libc().getsockname(fd, address, length) !== 0 || libc().connect(fd, address, length[0] ?? 0) !== 0)
    throw systemError('pause the reception of datagrams');
}

/** Reverts `pauseReception`; an explicitly bound socket keeps its address and port. */
export function resumeReception(fd: number): void {
  const unspecified = new Uint8Array(ADDRESS_BYTES);
  new DataView(unspecified.buffer).setUint16(0, AF_UNSPEC, true);
  if (libc().connect(fd, unspecified, unspecified.length) !== 0)
    throw systemError('resume the reception of datagrams');
}

/** Returns the first bytes of the oldest datagram that has not been read; null: there is none. */
export function oldestDatagram(fd: number): Uint8Array | null {
  const bytes = new Uint8Array(PEEK_BYTES);
  const length = libc().recv(fd, bytes, PEEK_BYTES, MSG_PEEK | MSG_DONTWAIT);
  return length < 0 ? null : bytes.subarray(0, Number(length));
}
