import type { IPFamily } from '../lib/address.ts';
import { systemError } from './libc.ts';
import { setSocketOption } from './socket-option.ts';

// linux/in.h, linux/in6.h
const IPPROTO_IP = 0;
const IP_TOS = 1;
const IPPROTO_IPV6 = 41;
const IPV6_TCLASS = 67;

/**
 * The code point of connections that a node's proxy opens after it has checked the client against the
 * network policies. Of pool 2, which is for local use (RFC 2474, section 6).
 */
export const CHECKED_DSCP = 43;

/** Sets the differentiated services code point of packets that a socket sends. Throws SystemError. */
export function setSocketDscp(fd: number, family: IPFamily, dscp: number): void {
  const [level, option] = family === 'ipv4' ? [IPPROTO_IP, IP_TOS] : [IPPROTO_IPV6, IPV6_TCLASS];
  if (!setSocketOption(fd, level, option, dscp << 2)) throw systemError('set the code point of a socket');
}
