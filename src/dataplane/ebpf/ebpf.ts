import { netnsCookie } from '../../kernel/bpf/netns-cookie.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import type { ServiceMap } from '../../service/model.ts';
import type { ApplyReport, Dataplane } from '../dataplane.ts';
import { createNftables } from '../nftables/nftables.ts';
import { defaultControlGroup } from './control-group.ts';
import { CapacityExceeded, ForwardingTable, type Sink } from './forwarding-table.ts';
import { NOTHING, readContents } from './kernel-contents.ts';
import { type Capacity, configValue, type Settings } from './layout.ts';
import { locateSteps } from './locate.ts';
import { DEFAULT_PIN_PATH, makePins, removePins } from './pins.ts';
import { checkRequirements } from './requirements.ts';
import { capacityFor, doubled } from './sizing.ts';
import {
  attachPrograms,
  closeMaps,
  closePrograms,
  type Links,
  loadPrograms,
  type Maps,
  makeControlGroup,
  makeMaps,
  openMaps,
  type Programs,
  pinMaps,
} from './socket-programs.ts';
import { compareWithMaps } from './verify.ts';

export interface EbpfOptions {
  readonly families: readonly IPFamily[];
  /** The node's network namespace; default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** Called when somebody else has changed what this mode wrote: call `verify`, then `sync`. */
  readonly onForeignChange?: () => void;
  /**
   * Directory of the cgroup v2 hierarchy whose processes, and those of groups below, are balanced at their sockets;
   * made where it is missing. Default: the hierarchy's root, which is every process of this machine.
   */
  readonly cgroup?: string;
  /** Where links and maps are pinned, one directory for each node. Default: /sys/fs/bpf/fairlead. */
  readonly pinPath?: string;
}

/** Not the nftables mode's own: a node that goes from one mode to the other has both for a moment. */
const FLOOR_TABLE = 'fairlead-floor';

interface Loaded {
  readonly maps: Maps;
  readonly capacity: Capacity;
  readonly table: ForwardingTable;
  readonly links: Links;
}

/**
 * The eBPF mode: sockets of pods and of the node go straight to an endpoint; all else is carried by the nftables mode's
 * tables, on the same map. Programs and maps are pinned and work on without this process.
 */
export function createEbpf(options: EbpfOptions): Dataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
  const pinPath = options.pinPath ?? DEFAULT_PIN_PATH;
  const floor = createNftables({
    families,
    logger,
    clock,
    table: FLOOR_TABLE,
    ...(netns === undefined ? {} : { netns }),
    ...(onForeignChange === undefined ? {} : { onForeignChange }),
  });
  let cgroup = options.cgroup ?? null;
  let loaded: Loaded | null = null;
  let current: ServiceMap | null = null;
  let busy = false;

  async function exclusively<T>(work: () => Promise<T>): Promise<T> {
    if (busy) throw new Error('calls of a dataplane must not overlap');
    busy = true;
    try {
      return await work();
    } finally {
      busy = false;
    }
  }

  function settings(): Settings {
    return { nodeCookie: netnsCookie(netns ?? null), synTimeout: 0, ejectMs: 5000, rescue: false };
  }

  /** Programs and maps of before or new ones, filled and attached. */
  function program(map: ServiceMap): void {
    const group = controlGroup();
    makePins(pinPath);
    const earlier = loaded ?? openMaps(pinPath);
    const wanted = capacityFor(map);
    let capacity = earlier && holds(earlier.capacity, wanted) ? earlier.capacity : wanted;
    for (;;) {
      try {
        loaded = install(map, capacity, earlier, group);
        return;
      } catch (error) {
        if (!(error instanceof CapacityExceeded)) throw error;
        capacity = doubled(capacity);
      }
    }
  }

  function install(
    map: ServiceMap,
    capacity: Capacity,
    earlier: { readonly maps: Maps; readonly capacity: Capacity } | null,
    group: string,
  ): Loaded {
    const same = earlier !== null && sameCapacity(earlier.capacity, capacity);
    const maps = same ? earlier.maps : makeMaps(capacity, earlier?.maps ?? null);
    let programs: Programs | null = null;
    try {
      programs = loadPrograms(maps);
      const found = earlier
        ? readContents(earlier.maps.frontends, earlier.maps.endpoints, earlier.maps.members)
        : NOTHING;
      const table = new ForwardingTable(capacity, clock);
      maps.config.update(new Uint8Array(4), configValue(settings()));
      // Of maps that are left behind only the numbers of frontends matter.
      table.fill(map, same ? found : { ...NOTHING, frontends: found.frontends }, sinkOf(maps));
      pinMaps(maps, pinPath);
      const links = attachPrograms(programs, group, pinPath);
      for (const link of loaded?.links.values() ?? []) link.close();
      if (earlier && !same) closeMaps(earlier.maps, maps);
      return { maps, capacity, table, links };
    } catch (error) {
      if (!same) closeMaps(maps, earlier?.maps ?? null);
      throw error;
    } finally {
      if (programs) closePrograms(programs);
    }
  }

  function controlGroup(): string {
    cgroup ??= defaultControlGroup();
    makeControlGroup(cgroup);
    return cgroup;
  }

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    // Before anything is written: a machine that cannot do it is left as it is.
    if (!loaded) checkRequirements();
    current = map;
    const started = performance.now();
    const below = await floor.sync(map);
    const between = performance.now();
    try {
      program(map);
    } catch (error) {
      if (error instanceof FairleadError) throw error;
      throw new FairleadError(`the eBPF programs cannot be put to work: ${messageOf(error)}`, {
        op: 'sync eBPF mode',
        code: 'EIO',
        cause: error,
      });
    }
    return report(below, between - started, performance.now() - between);
  }

  function report(below: ApplyReport, floorMs: number, ownMs: number): ApplyReport {
    const failed = [...(loaded?.table.failed ?? [])].map(([key, error]) => ({ key, error }));
    const keys = new Set(below.failed.map(({ key }) => key));
    for (const { key, error } of failed) {
      logger.warn({ frontend: key, error: messageOf(error) }, 'a frontend is left to nftables');
    }
    return {
      encodeMs: below.encodeMs,
      kernelMs: floorMs - below.encodeMs + ownMs,
      operations: below.operations + (loaded?.table.takeOperations() ?? 0),
      failed: [...below.failed, ...failed.filter(({ key }) => !keys.has(key))],
    };
  }

  return {
    mode: 'ebpf',
    families,
    sync: (map) => exclusively(() => sync(map)),

    apply: (change, map) =>
      exclusively(async () => {
        if (!loaded || change.node) return await sync(map);
        current = map;
        const started = performance.now();
        try {
          loaded.table.apply(change, map, sinkOf(loaded.maps));
        } catch (error) {
          if (!(error instanceof CapacityExceeded)) {
            logger.warn({ error: messageOf(error) }, 'writing the BPF maps anew');
          }
          program(map);
        }
        const between = performance.now();
        const below = await floor.apply(change, map);
        return report(below, performance.now() - between, between - started);
      }),

    verify: () =>
      exclusively(async () => {
        if (!current || !loaded || !cgroup) return await floor.verify();
        const wanted = configValue(settings());
        return [...compareWithMaps(loaded, wanted, cgroup, pinPath), ...(await floor.verify())];
      }),

    locate: (frontend, packet) => [
      ...(loaded ? locateSteps(loaded.table, frontend, packet) : []),
      ...floor.locate(frontend, packet),
    ],

    async close() {
      release();
      await floor.close();
    },

    remove: (options) =>
      exclusively(async () => {
        removePins(pinPath);
        release();
        current = null;
        await floor.remove(options);
      }),
  };

  function release(): void {
    for (const link of loaded?.links.values() ?? []) link.close();
    if (loaded) closeMaps(loaded.maps);
    loaded = null;
  }
}

function sinkOf(maps: Maps): Sink {
  const deleteAll = (map: Maps['frontends'], keys: readonly Uint8Array[]) => {
    for (const key of keys) map.delete(key);
  };
  return {
    writeBackends: (elements) => elements.flush(maps.backends),
    writeSlots: (elements) => elements.flush(maps.endpoints),
    writeMembers: (elements) => elements.flush(maps.members),
    writeFrontends: (elements) => elements.flush(maps.frontends),
    deleteFrontends: (keys) => deleteAll(maps.frontends, keys),
    deleteMembers: (keys) => deleteAll(maps.members, keys),
  };
}

function holds(has: Capacity, wanted: Capacity): boolean {
  return (
    has.frontends >= wanted.frontends && has.endpoints >= wanted.endpoints && has.backends >= wanted.backends
  );
}

function sameCapacity(a: Capacity, b: Capacity): boolean {
  return a.frontends === b.frontends && a.endpoints === b.endpoints && a.backends === b.backends;
}
