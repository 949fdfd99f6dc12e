import { openDelayQueue } from '../../kernel/delay-queue.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { systemClock } from '../../lib/clock.ts';
import { queue } from '../../nft/rule.ts';
import { Tables } from '../../nft/tables.ts';

const BEFORE_ALL = -300;

/** Delays the packets that arrive in a network namespace. Null: the kernel cannot. */
export function delayArrivals(netns: string, delayMs: number): { close(): void } | null {
  const tables = new Tables({ families: ['ipv4', 'ipv6'], name: 'delayed', netns });
  const form = tables.connection.queueForm(NFPROTO.ipv4);
  if (form === null) {
    tables.close();
    return null;
  }
  const packets = openDelayQueue({ netns, delayMs, clock: systemClock });
  for (const table of tables) {
    const base = { type: 'filter', hook: 'prerouting', priority: BEFORE_ALL } as const;
    const chains = [{ name: 'arriving', base, rules: [[queue(packets.number, form)]] }];
    table.replaceSync({ family: table.family, name: 'delayed', chains, sets: [], groups: new Map() });
  }
  return {
    close() {
      packets.close();
      for (const table of tables) table.removeSync();
      tables.close();
    },
  };
}
