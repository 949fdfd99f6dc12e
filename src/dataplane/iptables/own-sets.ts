import { setTimeout } from 'node:timers/promises';
import { type Ipsets, openIpsets } from '../../kernel/ipset.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { ApplyReport } from '../dataplane.ts';
import { SET_PREFIX } from './chain-names.ts';
import type { AffinitySet } from './service-chains.ts';

/** The delay before another attempt to remove sets that were in use. */
const SETS_MS = 20;

/** The sets of clients with affinity. */
export interface OwnSets {
  /** Opens the kernel's interface; returns false if it has none. Until then there are no sets. */
  open(): boolean;
  names(): string[];
  create(sets: readonly AffinitySet[]): void;
  /** Removes sets. Returns the sets that rules still use. */
  destroy(names: readonly string[]): Promise<ApplyReport['failed']>;
  close(): void;
}

export function createOwnSets(netns: NetnsRef | undefined, logger: Logger): OwnSets {
  let sets: Ipsets | null = null;
  let areMissing = false;
  return {
    open() {
      if (sets || areMissing) return sets !== null;
      try {
        const opened = openIpsets(netns);
        opened.list();
        sets = opened;
      } catch (error) {
        areMissing = true;
        logger.warn(
          { error: messageOf(error) },
          'session affinity is off: this kernel lacks ipset (ip_set, ip_set_hash_ip, xt_set)',
        );
      }
      return sets !== null;
    },
    names: () => (sets?.list() ?? []).filter((name) => name.startsWith(SET_PREFIX)),
    create: (wanted) => sets?.create(wanted),
    async destroy(names) {
      let used = sets?.destroy(names) ?? new Map<string, Error>();
      if (used.size > 0) {
        // The kernel frees deleted rules a moment later.
        await setTimeout(SETS_MS);
        used = sets?.destroy(used.keys()) ?? used;
      }
      for (const [set, error] of used)
        logger.error({ set, error: messageOf(error) }, 'cannot remove an ipset: rules use it');
      return [...used].map(([set, error]) => ({ key: `ipset ${set}`, error }));
    },
    close() {
      sets?.close();
      sets = null;
    },
  };
}
