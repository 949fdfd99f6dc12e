import { closeSync } from 'node:fs';
import { inControlGroup } from '../kernel/control-group.ts';
import { bindUdpIn, type NetnsRef, openTcpIn } from '../kernel/netns.ts';
import type { IPFamily } from '../lib/address.ts';

/** Where a probe's socket is created. */
export interface ProbeOrigin {
  readonly netns: NetnsRef;
  /** Null: the control group of this process. */
  readonly controlGroup: string | null;
}

/** Unconnected sockets for probes. */
export interface ProbeSockets {
  /** Returns the file descriptor of a new socket, which the caller closes; UDP sockets are bound to a new port. */
  open(origin: ProbeOrigin, protocol: 'TCP' | 'UDP', family: IPFamily): number;
  /** Closes the sockets that were not used. */
  close(): void;
}

/**
 * Moving a process between control groups waits for an RCU grace period, which takes up to 20 ms on a busy machine: this
 * many sockets are created at once.
 */
const BATCH = 32;

/**
 * `nextUdpPort`: returns the port of each new UDP socket; default: the kernel chooses, and may choose the port of an
 * earlier flow that connection tracking still knows.
 */
export function createProbeSockets(nextUdpPort: () => number = () => 0): ProbeSockets {
  const unused = new Map<string, number[]>();

  return {
    open({ netns, controlGroup }, protocol, family) {
      const open = () =>
        protocol === 'TCP'
          ? openTcpIn(netns, family)
          : bindUdpIn(netns, family === 'ipv6' ? '::' : '0.0.0.0', nextUdpPort());
      if (controlGroup === null) return open();
      const key = JSON.stringify([netns, controlGroup, protocol, family]);
      const fd = unused.get(key)?.pop();
      if (fd !== undefined) return fd;
      const made = inControlGroup(controlGroup, () => Array.from({ length: BATCH }, open));
      unused.set(key, made);
      return made.pop() ?? open();
    },

    close() {
      for (const fd of [...unused.values()].flat()) closeSync(fd);
      unused.clear();
    },
  };
}
