/**
 * Subjects of programming.ts: the eBPF mode, and its BPF maps alone, without the nftables tables that stand below it.
 */
import { randomBytes } from 'node:crypto';
import type { ApplyReport, Dataplane } from '../src/dataplane/dataplane.ts';
import { createEbpf } from '../src/dataplane/ebpf/ebpf.ts';
import { ForwardingTable } from '../src/dataplane/ebpf/forwarding-table.ts';
import { NOTHING } from '../src/dataplane/ebpf/kernel-contents.ts';
import { sinkOf } from '../src/dataplane/ebpf/kernel-sink.ts';
import { removePins } from '../src/dataplane/ebpf/pins.ts';
import { capacityFor } from '../src/dataplane/ebpf/sizing.ts';
import { closeMaps, type Maps, makeMaps } from '../src/dataplane/ebpf/socket-programs.ts';
import { makeTestGroup, removeTestGroup } from '../src/dataplane/ebpf/testing/client.ts';
import { systemClock } from '../src/lib/clock.ts';

/** The eBPF mode with a control group and pins of its own, which go when it is closed. */
export function ebpfMode(netns: string): Dataplane {
  const cgroup = makeTestGroup();
  const pinPath = `/run/flb-${randomBytes(3).toString('hex')}-bpf`;
  const dataplane = createEbpf({ families: ['ipv4'], netns, cgroup, pinPath });
  return {
    ...dataplane,
    async close() {
      await dataplane.close();
      removePins(pinPath);
      await removeTestGroup(cgroup);
    },
  };
}

/** What the mode's loader takes to make and fill its maps, and to write one change. */
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
    async sync(map) {
      drop();
      const started = performance.now();
      const capacity = capacityFor(map);
      const making = performance.now();
      maps = makeMaps(capacity, null);
      const kernelMs = performance.now() - making;
      table = new ForwardingTable(capacity, systemClock, true);
      const written = timed(maps);
      table.fill(map, NOTHING, written.sink);
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

/** Writes to maps and keeps the time that the kernel takes. */
function timed(maps: Maps) {
  let ms = 0;
  const timed =
    <T>(write: (argument: T) => void) =>
    (argument: T) => {
      const started = performance.now();
      write(argument);
      ms += performance.now() - started;
    };
  const sink = sinkOf(maps);
  return {
    ms: () => ms,
    sink: {
      writeBackends: timed(sink.writeBackends),
      writeSlots: timed(sink.writeSlots),
      writeMembers: timed(sink.writeMembers),
      writeFrontends: timed(sink.writeFrontends),
      deleteFrontends: timed(sink.deleteFrontends),
      deleteMembers: timed(sink.deleteMembers),
      writeDeparted: timed(sink.writeDeparted),
      deleteDeparted: timed(sink.deleteDeparted),
    },
  };
}
