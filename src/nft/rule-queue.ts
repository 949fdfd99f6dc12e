import { setImmediate } from 'node:timers/promises';
import type { NetnsRef } from '../kernel/netns.ts';
import type { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import { openPacketQueue } from '../kernel/packet-queue.ts';
import { describeError, FairleadError } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { queue, type Statement } from './rule.ts';

/** IP and TCP headers without data. */
const SNAP_BYTES = 128;

export interface RuleQueueOptions {
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
  /** Returns whether a packet continues; otherwise it is dropped. */
  readonly decide: (packet: Uint8Array) => boolean;
}

/** A queue in which rules let this process decide about packets. */
export interface RuleQueue {
  /** Ends a rule: hands its packets to this process; accepts them when it has ended. */
  readonly statement: Statement;
  /** Resolves when no packet waits for a decision, if no rule queues others meanwhile. */
  idle(): Promise<void>;
  close(): void;
}

/** Opens a queue. Returns null, and logs the reason, if this kernel has none. */
export function openRuleQueue(
  connection: NftConnection,
  { netns, logger, decide }: RuleQueueOptions,
): RuleQueue | null {
  try {
    const form = connection.queueForm(NFPROTO.ipv4);
    if (form === null) {
      throw new FairleadError('nf_tables of this kernel cannot queue packets', {
        op: 'open packet queue',
        code: 'missing-kernel-feature',
        object: 'CONFIG_NFT_QUEUE',
        hint: 'load the module nft_queue, or use a kernel that has it',
      });
    }
    let decided = 0;
    const { number, close } = openPacketQueue({
      netns,
      snapBytes: SNAP_BYTES,
      decide(packet) {
        decided++;
        return decide(packet);
      },
    });
    return {
      statement: queue(number, form),
      async idle() {
        // Two turns of the event loop: it may not have looked at the socket yet in the present one.
        for (let before = -1; before !== decided; ) {
          before = decided;
          for (let turn = 0; turn < 2; turn++) await setImmediate();
        }
      },
      close,
    };
  } catch (error) {
    logger.warn(
      {},
      `connections to Services that network policies deny are accepted and then reset, not dropped: ${describeError(error)}`,
    );
    return null;
  }
}
