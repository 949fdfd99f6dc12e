import { closeSync } from 'node:fs';
import { inControlGroup } from '../kernel/control-group.ts';
import { bindTcpIn, bindUdpIn, type NetnsRef } from '../kernel/netns.ts';
import type { IPFamily } from '../lib/address.ts';
import { hasCode } from '../lib/errors.ts';

/** Where a probe's socket is created. */
export interface ProbeOrigin {
  readonly netns: NetnsRef;
  /**
   * The control group of its processes, by which some modes recognize them; null: the control group of this process, if the
   * place is on no node.
   */
  readonly controlGroup: string | null;
}

/** Unconnected sockets for probes, each bound to a port of its own. */
export interface ProbeSockets {
  /** Returns the file descriptor of a new socket, which the caller closes. */
  open(origin: ProbeOrigin, protocol: 'TCP' | 'UDP', family: IPFamily): number;
  /** Closes the sockets that were not used. */
  close(): void;
}

/**
 * Moving a process between control groups waits for an RCU grace period, which takes up to 20 ms on a busy machine: this
 * many sockets are created at once.
 */
const BATCH = 32;

/** Below the node ports and the ports that the kernel chooses. */
const FIRST_PORT = 10_000;
const PORTS = 20_000;
/** All ports have had their turn after 200 s: longer than the 120 s for which the kernel knows a closed connection. */
const PORTS_PER_SECOND = 100;
/** Ports in a row that other programs of a namespace may use. */
const MAX_USED_PORTS = 100;

/**
 * Gives out sockets. `now`: the time of day in milliseconds, by which runs that follow each other begin at different ports.
 *
 * Ports that the kernel chooses may be those of an earlier connection to the same endpoint through a Service. Connection
 * tracking then translates the port; IPVS takes the answers to a direct connection for those to the earlier one, and the
 * probe has no answer.
 */
export function createProbeSockets(now: number): ProbeSockets {
  const firstTurn = Math.floor((now / 1000) * PORTS_PER_SECOND);
  const turns = new Map<string, number>();
  const unused = new Map<string, number[]>();

  function bind(netns: NetnsRef, protocol: 'TCP' | 'UDP', family: IPFamily): number {
    const place = JSON.stringify(netns);
    const wildcard = family === 'ipv6' ? '::' : '0.0.0.0';
    for (let attempt = 1; ; attempt++) {
      const turn = turns.get(place) ?? firstTurn;
      turns.set(place, turn + 1);
      const port = FIRST_PORT + (turn % PORTS);
      try {
        return protocol === 'TCP' ? bindTcpIn(netns, wildcard, port) : bindUdpIn(netns, wildcard, port);
      } catch (error) {
        if (!hasCode(error, 'EADDRINUSE') || attempt === MAX_USED_PORTS) throw error;
      }
    }
  }

  return {
    open({ netns, controlGroup }, protocol, family) {
      const open = () => bind(netns, protocol, family);
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
