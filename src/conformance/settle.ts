import { type Flow, packetOf } from './flows.ts';
import type { Oracle } from './run.ts';

const SETTLE_MS = 20_000;

/** Waits until every node has programmed all the Services. */
export async function settle(flows: readonly Flow[], oracle: Oracle): Promise<void> {
  const byNode = Map.groupBy(flows, (flow) => flow.from.node);
  for (const [node, wanted] of byNode) {
    const packets = wanted.map(packetOf);
    for (const until = Date.now() + SETTLE_MS; ; ) {
      const verdicts = await oracle.decide(node, packets);
      const unknown = verdicts.findIndex(
        ({ action, reason }, index) =>
          action === 'pass' ||
          reason === 'unallocated-cluster-ip' ||
          (wanted[index]?.expected.action === 'forward') !== (action === 'forward'),
      );
      if (unknown < 0) break;
      // A lasting difference will appear in the flows.
      if (Date.now() > until) break;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
