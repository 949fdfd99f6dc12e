import type { BpfMap } from '../../kernel/bpf/map.ts';
import type { Sink } from './forwarding-table.ts';
import type { Maps } from './socket-programs.ts';

/** Where a table's writes go to maps of the kernel: one call for each map. */
export function sinkOf(maps: Maps): Sink {
  const deleteAll = (map: BpfMap, keys: readonly Uint8Array[]) => {
    for (const key of keys) map.delete(key);
  };
  return {
    writeBackends: (elements) => elements.flush(maps.backends),
    // No route leads to these slots yet.
    writeSlots: (elements) => elements.flushToMemory(maps.endpoints),
    writeMembers: (elements) => elements.flush(maps.members),
    writeFrontends: (elements) => elements.flush(maps.frontends),
    deleteFrontends: (keys) => deleteAll(maps.frontends, keys),
    deleteMembers: (keys) => deleteAll(maps.members, keys),
    writeDeparted: (keys) => {
      for (const key of keys) maps.departed.update(key, new Uint8Array(4));
    },
    deleteDeparted: (keys) => deleteAll(maps.departed, keys),
  };
}
