import { libc, systemError } from '../libc.ts';
import { inNetns, type NetnsRef } from '../netns.ts';
import { AF_INET, SOCK_CLOEXEC, SOL_SOCKET } from '../socket-numbers.ts';

// asm-generic/socket.h, bits/socket.h
const SO_NETNS_COOKIE = 71;
const SOCK_DGRAM = 2;

/**
 * Returns the number that identifies a network namespace in BPF programs (bpf_get_netns_cookie; kernel
 * 5.14).
 */
export function netnsCookie(ref: NetnsRef | null): bigint {
  const read = () => {
    const fd = libc().socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) throw systemError('open socket');
    const value = new Uint8Array(8);
    const result = libc().getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, value, Uint8Array.of(8, 0, 0, 0));
    const error = result < 0 ? systemError('read cookie of network namespace') : null;
    libc().close(fd);
    if (error) throw error;
    return new DataView(value.buffer).getBigUint64(0, true);
  };
  return inNetns(ref, read);
}
