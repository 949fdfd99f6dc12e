// The part of an agent that flows costs, with the mode that it reads, in a process of its own for bench/flows.ts.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Dataplane } from '../src/dataplane/dataplane.ts';
import { createFlowWatch } from '../src/flows/flow-watch.ts';
import { systemClock } from '../src/lib/clock.ts';
import { messageOf } from '../src/lib/errors.ts';
import { silentLogger } from '../src/lib/log.ts';
import { largeClusterTable } from './large-cluster.ts';

/** What the process is to measure, as its argument. */
export interface WatchedMode {
  readonly mode: 'nftables' | 'iptables' | 'ipvs' | 'ebpf' | 'userspace';
  readonly netns: string;
  /** The control group of the client, for the programs of the eBPF mode. */
  readonly group: string;
  readonly pinPath: string;
  readonly services: number;
}

/** What is asked of the process: `start` and `stop` to read flows, `reset` to begin a measurement without them. */
export type WatcherCommand = 'start' | 'reset' | 'stop' | 'end';

/** What was done since the last command; or why the mode cannot be measured here. */
export type WatcherAnswer =
  | {
      readonly seconds: number;
      readonly processorSeconds: number;
      /** Lines written, as JSON. */
      readonly lines: number;
      readonly notices: readonly string[];
    }
  | { readonly failure: string };

/** How long the taps may take to open, and the last events to arrive. */
const SETTLE_MS = 300;

async function openMode({ mode, netns, group, pinPath }: WatchedMode): Promise<Dataplane> {
  const settings = { families: ['ipv4'], netns } as const;
  switch (mode) {
    case 'nftables':
      return (await import('../src/dataplane/nftables/nftables.ts')).createNftables(settings);
    case 'iptables':
      return (await import('../src/dataplane/iptables/iptables.ts')).createIptables(settings);
    case 'ipvs':
      return (await import('../src/dataplane/ipvs/ipvs.ts')).createIpvs(settings);
    case 'userspace':
      return (await import('../src/dataplane/userspace/userspace.ts')).createUserspace(settings);
    case 'ebpf': {
      const { openEbpf } = await import('../src/dataplane/testing/open-ebpf.ts');
      return openEbpf({ ...settings, pinPath, cgroup: group });
    }
  }
}

const wanted = JSON.parse(process.argv[2] ?? '{}') as WatchedMode;
const answer = (text: WatcherAnswer) => process.send?.(text);
let dataplane: Dataplane;
try {
  dataplane = await openMode(wanted);
  const { failed } = await dataplane.sync(largeClusterTable(wanted.services, 1).commit().map);
  if (failed[0]) throw failed[0].error;
} catch (error) {
  answer({ failure: messageOf(error) });
  process.exit(1);
}
const flows = createFlowWatch({
  dataplane: () => dataplane,
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

async function obey(command: WatcherCommand): Promise<void> {
  if (command === 'start')
    watch = flows.watch((entry) => {
      if (entry.type === 'notice') notices.push(entry.text);
      else lines++;
      bytes += JSON.stringify(entry).length;
    });
  if (command !== 'reset') await sleep(SETTLE_MS);
  if (command === 'stop') {
    watch?.close();
    watch = null;
  }
  const { user, system } = process.cpuUsage(used);
  answer({
    seconds: (performance.now() - begun) / 1000,
    processorSeconds: (user + system) / 1e6,
    lines,
    notices,
  });
  lines = 0;
  notices = [];
  begun = performance.now();
  used = process.cpuUsage();
  if (command !== 'end') return;
  await dataplane.remove();
  await dataplane.close();
  process.exit(bytes < 0 ? 1 : 0);
}

process.on('message', (command) => void obey(command as WatcherCommand));
process.on('disconnect', () => process.exit(1));
answer({ seconds: 0, processorSeconds: 0, lines: 0, notices: [] });
