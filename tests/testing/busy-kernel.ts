import type { NetnsRef } from '../../src/kernel/netns.ts';
import { typesOf } from '../../src/nft/rule.ts';
import { elements, group, type TableSpec } from '../../src/nft/spec.ts';
import { Tables } from '../../src/nft/tables.ts';

/** Elements of a transaction: what a node has for 10,000 Services of ten endpoints. */
const ELEMENTS = 100_000;

/** Commits large transactions of nf_tables in a namespace, one after the other, on a thread, as a proxy does. */
export function busyKernel(netns: NetnsRef): { end(): Promise<void>; transactions(): number } {
  const tables = new Tables({ families: ['ipv4'], name: 'busy', netns });
  const words = Uint32Array.from({ length: ELEMENTS }, (_, i) => i + 1);
  const render = (): TableSpec => ({
    family: 'ipv4',
    name: 'busy',
    chains: [],
    sets: [{ name: 'all', key: typesOf('ip.saddr') }],
    groups: new Map([['all', group([elements('all', words, { count: ELEMENTS })])]]),
  });
  let isEnding = false;
  let count = 0;
  const running = (async () => {
    while (!isEnding) {
      await tables.replace(render);
      count++;
    }
  })();
  return {
    transactions: () => count,
    async end() {
      isEnding = true;
      await running;
      await tables.remove();
      tables.close();
    },
  };
}
