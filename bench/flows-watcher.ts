// The part of an agent that flows costs, in a process of its own for bench/flows.ts.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Dataplane } from '../src/dataplane/dataplane.ts';
import { createFlowWatch } from '../src/flows/flow-watch.ts';
import { systemClock } from '../src/lib/clock.ts';
import { silentLogger } from '../src/lib/log.ts';

/** What was done since the start. */
export interface FlowsReport {
  readonly seconds: number;
  readonly processorSeconds: number;
  /** Lines written, as JSON. */
  readonly lines: number;
  readonly notices: readonly string[];
}

/** How long the taps may take to open, and the last events to arrive. */
const SETTLE_MS = 300;

const flows = createFlowWatch({
  // Connection tracking is the source in this mode.
  dataplane: () => ({ mode: 'nftables' }) as Dataplane,
  logger: silentLogger,
  clock: systemClock,
  monotonic: () => process.hrtime.bigint(),
  sleep: (ms) => sleep(ms),
  domain: 'cluster.local',
  tables: () => ({ map: null, policies: null }),
});
let watch: { close(): void } | null = null;
let begun = performance.now();
let used = process.cpuUsage();
let bytes = 0;
let lines = 0;
let notices: string[] = [];

process.on('message', async (what) => {
  if (what === 'start') {
    lines = 0;
    notices = [];
    watch = flows.watch((entry) => {
      if (entry.type === 'notice') notices.push(entry.text);
      else lines++;
      bytes += JSON.stringify(entry).length;
    });
    await sleep(SETTLE_MS);
    begun = performance.now();
    used = process.cpuUsage();
  } else {
    await sleep(SETTLE_MS);
    watch?.close();
  }
  const { user, system } = process.cpuUsage(used);
  const seconds = (performance.now() - begun) / 1000;
  process.send?.({ seconds, processorSeconds: (user + system) / 1e6, lines, notices } satisfies FlowsReport);
});
process.on('disconnect', () => process.exit(bytes > 0 ? 0 : 1));
