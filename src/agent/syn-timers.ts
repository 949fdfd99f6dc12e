import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import type { SynTimeout } from '../dataplane/ebpf/syn-timeout.ts';
import { EJECTION_RULES } from '../failover/ejection-rules.ts';
import { controlGroupRoot } from '../kernel/control-group.ts';
import type { Cidr } from '../lib/address.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

/** Modes in which a retransmitted SYN reaches another endpoint only because its connection tracking entry was deleted. */
const MODES: ReadonlySet<Mode> = new Set<Mode>(['nftables', 'iptables', 'ipvs']);

export interface SynTimersOptions {
  /** The control group of this node's pods; null: the whole machine is the node. */
  readonly cgroupParent: string | null;
  readonly logger: Logger;
  /** For tests: attaches the program. */
  readonly attach?: (networks: readonly Cidr[]) => Promise<SynTimeout>;
}

/** The short SYN timers of this node's sockets, which connect to Services in a mode that uses connection tracking. */
export interface SynTimers {
  /** Attaches, replaces or detaches the program for a mode and the networks of cluster IPs. Never rejects. */
  follow(mode: Mode, networks: readonly Cidr[]): Promise<void>;
  /** Null: sockets have the kernel's timer. */
  readonly current: SynTimeout | null;
  close(): void;
}

export function createSynTimers(options: SynTimersOptions): SynTimers {
  const { cgroupParent, logger, attach = (networks) => load(cgroupParent, networks) } = options;
  let current: SynTimeout | null = null;
  let wanted = '';
  let closed = false;
  let isLogged = false;

  function use(next: SynTimeout | null): void {
    // The new program is attached already.
    current?.close();
    current = next;
  }

  return {
    async follow(mode, networks) {
      const names = MODES.has(mode) ? networks.map(({ text }) => text).join(' ') : '';
      if (closed || names === wanted) return;
      wanted = names;
      if (names === '') return use(null);
      try {
        const next = await attach(networks);
        if (closed || wanted !== names) next.close();
        else use(next);
      } catch (error) {
        if (wanted === names) use(null);
        logger[isLogged ? 'debug' : 'info'](
          { error: messageOf(error) },
          `SYNs to Services keep the kernel's timer: an unanswered one reaches another endpoint after a second, not ${EJECTION_RULES.programUnansweredMs} ms`,
        );
        isLogged = true;
      }
    },
    get current() {
      return current;
    },
    close() {
      closed = true;
      use(null);
    },
  };
}

/** Loaded on first use: most of the modes need no BPF objects. */
async function load(cgroupParent: string | null, networks: readonly Cidr[]): Promise<SynTimeout> {
  const root = controlGroupRoot();
  if (root === null) {
    throw new FairleadError('no cgroup v2 hierarchy below /sys/fs/cgroup', {
      op: 'shorten SYN timers',
      code: 'missing-kernel-feature',
    });
  }
  const { attachSynTimeout } = await import('../dataplane/ebpf/syn-timeout.ts');
  return attachSynTimeout(cgroupParent === null ? root : join(root, cgroupParent), networks);
}
