/**
 * Subjects of programming.ts: the eBPF mode, and its BPF maps alone, without its nf_tables table.
 */
import { randomBytes } from 'node:crypto';
import { NO_ABILITIES } from '../src/dataplane/abilities.ts';
import type { ApplyReport, Dataplane } from '../src/dataplane/dataplane.ts';
import { ForwardingTable } from '../src/dataplane/ebpf/forwarding-table.ts';
import { EMPTY } from '../src/dataplane/ebpf/map-contents.ts';
import { closeMaps, type Maps, makeMaps, sinkOf } from '../src/dataplane/ebpf/maps.ts';
import { removePins } from '../src/dataplane/ebpf/pins.ts';
import { capacityFor } from '../src/dataplane/ebpf/sizing.ts';
import { makeTestGroup, removeTestGroup } from '../src/dataplane/ebpf/testing/client.ts';
import { openEbpf } from '../src/dataplane/testing/open-ebpf.ts';
import { systemClock } from '../src/lib/clock.ts';

/** Opens the eBPF mode with a separate control group and pins, removed when it is closed. */
export function ebpfMode(netns: string): Dataplane {
  const cgroup = makeTestGroup();
  const pinPath = `/run/flb-${randomBytes(3).toString('hex')}-bpf`;
  const dataplane = openEbpf({ families: ['ipv4'], netns, cgroup, pinPath });
  return {
    ...dataplane,
    async close() {
      await dataplane.close();
      removePins(pinPath);
      await removeTestGroup(cgroup);
    },
  };
}

/** Measures the time in which the mode creates and fills its maps, and writes one change. */
export function ebpfMaps(): Dataplane {
  let maps: Maps | null = null;
  let table: ForwardingTable | null = null;
  const drop = () => {
    if (maps) closeMaps(maps);
    maps = null;
  };
  return {
    mode: 'ebpf',
    families: ['ipv4'],
    abilities: NO_ABILITIES,
    async sync(map) {
      drop();
      const started = performance.now();
      const capacity = capacityFor(map);
      const making = performance.now();
      maps = makeMaps(capacity, null);
      const kernelMs = performance.now() - making;
      table = new ForwardingTable(capacity, systemClock, true);
      const written = timed(maps);
      table.fill(map, EMPTY, written.sink);
      return report(performance.now() - started, kernelMs + written.ms(), table);
    },
    async apply(change, map) {
      if (!maps || !table) throw new Error('nothing is loaded');
      const started = performance.now();
      const written = timed(maps);
      table.apply(change, map, written.sink);
      return report(performance.now() - started, written.ms(), table);
    },
    verify: async () => [],
    locate: () => [],
    async close() {
      drop();
    },
    async remove() {
      drop();
    },
  };
}

function report(totalMs: number, kernelMs: number, table: ForwardingTable): ApplyReport {
  const operations = table.takeOperations();
  return { encodeMs: totalMs - kernelMs, kernelMs, operations, failed: [] };
}

/** Writes to maps and measures the kernel's time. */
function timed(maps: Maps) {
  let ms = 0;
  const timed =
    <T extends unknown[]>(call: (...args: T) => void) =>
    (...args: T) => {
      const started = performance.now();
      call(...args);
      ms += performance.now() - started;
    };
  const { write, delete: remove } = sinkOf(maps);
  return { ms: () => ms, sink: { write: timed(write), delete: timed(remove) } };
}
