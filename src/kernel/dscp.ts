import type { IPFamily } from '../lib/address.ts';
import { libc, systemError } from './libc.ts';

// linux/in.h, linux/in6.h
const IPPROTO_IP = 0;
const IP_TOS = 1;
const IPPROTO_IPV6 = 41;
const IPV6_TCLASS = 67;
/** Reused: each connection of a proxy sets a code point. */
const value = new Uint8Array(new ArrayBuffer(4));
const view = new DataView(value.buffer);

/**
 * The code point of connections that a node's proxy opens after it has checked the client against the
 * network policies. Of pool 2, which is for local use (RFC 2474, section 6).
 */
export const CHECKED_DSCP = 43;

/** Sets the differentiated services code point of packets that a socket sends. Throws SystemError. */
export function setSocketDscp(fd: number, family: IPFamily, dscp: number): void {
  view.setUint32(0, dscp << 2, true);
  const [level, option] = family === 'ipv4' ? [IPPROTO_IP, IP_TOS] : [IPPROTO_IPV6, IPV6_TCLASS];
  if (libc().setsockopt(fd, level, option, value, value.length) !== 0)
    throw systemError('set the code point of a socket');
}
