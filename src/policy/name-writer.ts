import { errnoName, libc, systemError } from '../kernel/libc.ts';
import { bindUdpIn, localPort, type NetnsRef, socketAddress } from '../kernel/netns.ts';
import { addressBytes, familyOf, type IPFamily } from '../lib/address.ts';
import { lifetimeIndex } from './name-limits.ts';
import { LOOPBACK_ADDRESS, noteBytes, noteToken } from './name-notes.ts';

/** Writes addresses that pods got for names into the kernel's sets. */
export interface NameWriter {
  /**
   * Allows a pod's address to begin flows to an address of the same family for at least so long. Returns whether the kernel
   * has it: the set may not exist yet.
   */
  write(group: string, pod: string, address: string, neededMs: number): boolean;
  close(): void;
}

/** An earlier note that no rule dropped may be reported by a send of its own. */
const ATTEMPTS = 3;

export function openNameWriter(secret: string, netns: NetnsRef | null = null): NameWriter {
  const sockets = new Map<IPFamily, number>();
  const tokens = new Map<string, Uint8Array>();

  const open = (family: IPFamily): number => {
    const fd = bindUdpIn(netns, LOOPBACK_ADDRESS[family], 0);
    // To itself: what no rule drops waits in its buffer, which nothing reads, and no other process gets it.
    const own = socketAddress(LOOPBACK_ADDRESS[family], localPort(fd));
    if (libc().connect(fd, own, own.length) !== 0) {
      const error = systemError('connect to own loopback address');
      libc().close(fd);
      throw error;
    }
    sockets.set(family, fd);
    return fd;
  };

  /** Null: this machine has no loopback address of the family, or no descriptor is left. */
  const openOnce = (family: IPFamily): number | null => {
    try {
      return open(family);
    } catch {
      return null;
    }
  };

  const tokenOf = (group: string): Uint8Array => {
    const known = tokens.get(group) ?? noteToken(secret, group);
    tokens.set(group, known);
    return known;
  };

  return {
    write(group, pod, address, neededMs) {
      const family = familyOf(address);
      const [from, to] = [addressBytes(pod), addressBytes(address)];
      if (!family || !from || !to || from.length !== to.length) return false;
      const bytes = noteBytes(tokenOf(group), lifetimeIndex(neededMs), from, to);
      const fd = sockets.get(family) ?? openOnce(family);
      if (fd === null) return false;
      for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
        if (libc().send(fd, bytes, bytes.length, 0) >= 0) return false;
        const code = errnoName(libc().errno());
        // The rule dropped the note behind the statement that adds the element.
        if (code === 'EPERM') return true;
        if (code !== 'EINTR' && code !== 'ECONNREFUSED' && code !== 'ENOBUFS') return false;
      }
      return false;
    },
    close() {
      for (const fd of sockets.values()) libc().close(fd);
      sockets.clear();
    },
  };
}
