import { jiffies } from '../../kernel/bpf/jiffies.ts';
import type { BpfLink } from '../../kernel/bpf/link.ts';
import { netnsCookie } from '../../kernel/bpf/netns-cookie.ts';
import type { AttachPoint } from '../../kernel/bpf/program.ts';
import { type RingReader, readRing } from '../../kernel/bpf/ring-buffer.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import type { ServiceMap } from '../../service/model.ts';
import type { ApplyReport, Dataplane } from '../dataplane.ts';
import type { Outcome } from '../failover/outcome.ts';
import type { FlowEvent } from '../flow-event.ts';
import { createNftables } from '../nftables/nftables.ts';
import { defaultControlGroup } from './control-group.ts';
import { DeviceAttachments } from './device-programs.ts';
import { clsactWay, isDeviceLink, removeFilters, tcxWay } from './device-ways.ts';
import { outcomeOf, readFlowEvent } from './flow-events.ts';
import { CapacityExceeded, ForwardingTable } from './forwarding-table.ts';
import { NOTHING, readContents } from './kernel-contents.ts';
import { sinkOf } from './kernel-sink.ts';
import { type Capacity, configValue, EVENTS_SIZE, type Settings } from './layout.ts';
import { locateSteps } from './locate.ts';
import { endConnections } from './own-connections.ts';
import { DEFAULT_PIN_PATH, makePins, removeLinks, removePins } from './pins.ts';
import { checkRequirements, deviceAttachment } from './requirements.ts';
import { leavePins, sweepFailures, sweepRescues } from './rescued-flows.ts';
import { capacityFor, doubled } from './sizing.ts';
import {
  attachProgram,
  attachPrograms,
  closeMaps,
  closePrograms,
  loadPrograms,
  type Maps,
  makeControlGroup,
  makeMaps,
  openMaps,
  pinMaps,
  socketHooks,
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
  /** False: endpoints that do not answer are none of this mode's business. Default: true. */
  readonly failover?: boolean;
  /** Called with endpoints that did not answer or refused, and with the first answer after that. */
  readonly onOutcome?: (outcome: Outcome) => void;
  /** How programs are attached to devices. Default: by links (tcx) where the kernel has them, else as filters. */
  readonly attachment?: 'tcx' | 'clsact';
}

export interface EbpfDataplane extends Dataplane {
  /** Ends the connections that sockets have to these endpoints, which are gone; how many. */
  endConnections(endpoints: readonly { readonly ip: string; readonly port: number }[]): number;
  /** Calls back with what happens to flows through Services, as it happens. Costs the programs something: close it. */
  watchFlows(onEvent: (event: FlowEvent) => void): { close(): void };
}

/**
 * How long a connection's first packet waits for an answer: longer than any answer within a cluster takes, so short
 * that two of these are hardly noticed.
 */
const SYN_TIMEOUT_MS = 100;
/** How long a first suspicion lasts; twice as long with each one that follows. */
const EJECT_MS = 5000;

const SWEEP_MS = 30_000;
/** Of maps that have one element. */
const CONFIG_KEY = new Uint8Array(4);

/** Not the nftables mode's own: a node that goes from one mode to the other has both for a moment. */
const FLOOR_TABLE = 'fairlead-floor';

interface Loaded {
  readonly maps: Maps;
  readonly capacity: Capacity;
  readonly table: ForwardingTable;
  readonly links: Map<AttachPoint, BpfLink>;
  readonly programs: Awaited<ReturnType<typeof loadPrograms>>;
}

/**
 * The eBPF mode: sockets of pods and of the node go straight to an endpoint; all else is carried by the nftables mode's
 * tables, on the same map. Programs and maps are pinned and work on without this process.
 */
export function createEbpf(options: EbpfOptions): EbpfDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
  const { failover = true, onOutcome } = options;
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
  const calls = createMutex();
  let attachments: DeviceAttachments | null = null;
  let ring: RingReader | null = null;
  let cancelSweep = () => {};
  const flowWatchers = new Set<(event: FlowEvent) => void>();
  /** Undefined: not found out yet. Null: in no way. */
  let attachment: 'tcx' | 'clsact' | null | undefined = failover ? options.attachment : null;

  function settings(table: ForwardingTable | null): Settings {
    return {
      nodeCookie: netnsCookie(netns ?? null),
      synTimeout: failover ? jiffies(SYN_TIMEOUT_MS) : 0,
      ejectMs: failover ? EJECT_MS : 0,
      rescue: (attachment ?? null) !== null,
      departed: (attachment ?? null) !== null && table !== null && table.hasDeparted,
      readers: flowWatchers.size > 0,
    };
  }

  function configure(maps: Maps, table: ForwardingTable): void {
    const wanted = configValue(settings(table));
    const there = maps.config.lookup(CONFIG_KEY);
    if (!there || Buffer.compare(there, wanted) !== 0) maps.config.update(CONFIG_KEY, wanted);
  }

  function hooks(table: ForwardingTable): ReadonlySet<AttachPoint> {
    const { departed, readers } = settings(table);
    return socketHooks(departed || readers);
  }

  /** After a change that the programs do not find out by themselves. */
  function reconfigure({ maps, table, links, programs }: Loaded): void {
    configure(maps, table);
    const hook = 'inetEgress';
    const isWanted = hooks(table).has(hook);
    const link = links.get(hook);
    const program = programs.sockets.get(hook);
    if (isWanted === (link !== undefined)) return;
    link?.close();
    links.delete(hook);
    if (isWanted && program && cgroup) links.set(hook, attachProgram(program, hook, cgroup, pinPath).link);
    else removeLinks(pinPath, (name) => name === hook);
  }

  /** Listens to the programs; the ring is the same as long as the pins are there. */
  function listen(maps: Maps): void {
    ring ??= readRing(maps.events.fd, EVENTS_SIZE, (record) => {
      const event = readFlowEvent(record);
      const outcome = event && outcomeOf(event);
      if (outcome) onOutcome?.(outcome);
      if (event) for (const watcher of flowWatchers) watcher(event);
    });
    sweepLater();
  }

  function sweepLater(): void {
    cancelSweep();
    cancelSweep = clock.after(SWEEP_MS, () => {
      if (!loaded) return;
      const { maps, table } = loaded;
      sweepRescues(maps, process.hrtime.bigint());
      sweepFailures(maps, (number) => table.usesBackend(number));
      sweepLater();
    });
  }

  /** Programs and maps of before or new ones, filled and attached. */
  async function program(map: ServiceMap): Promise<void> {
    const group = controlGroup();
    makePins(pinPath);
    const earlier = loaded ?? openMaps(pinPath);
    const wanted = capacityFor(map);
    let capacity = earlier && holds(earlier.capacity, wanted) ? earlier.capacity : wanted;
    for (;;) {
      try {
        loaded = await install(map, capacity, earlier, group);
        return;
      } catch (error) {
        if (!(error instanceof CapacityExceeded)) throw error;
        capacity = doubled(capacity);
      }
    }
  }

  async function install(
    map: ServiceMap,
    capacity: Capacity,
    earlier: { readonly maps: Maps; readonly capacity: Capacity } | null,
    group: string,
  ): Promise<Loaded> {
    const same = earlier !== null && sameCapacity(earlier.capacity, capacity);
    const maps = same ? earlier.maps : makeMaps(capacity, earlier?.maps ?? null);
    // Loading takes the verifier a tenth of a second: programs that have these maps already go on.
    const kept = same && loaded !== null ? loaded.programs : null;
    let programs = kept;
    try {
      programs ??= await loadPrograms(maps);
      const found = earlier ? readContents(earlier.maps) : NOTHING;
      const table = new ForwardingTable(capacity, clock, !same);
      // Of maps that are left behind only the numbers of frontends matter.
      const { frontends, departed } = found;
      table.fill(map, same ? found : { ...NOTHING, frontends, departed }, sinkOf(maps));
      pinMaps(maps, pinPath);
      // Those at the devices first: what they do not find in the maps they let pass.
      if (attachment) {
        const way = () => (attachment === 'tcx' ? tcxWay(pinPath, netns) : clsactWay(netns));
        attachments ??= new DeviceAttachments({ way: way(), netns, logger });
        attachments.use(programs.devices);
      } else removeLinks(pinPath, isDeviceLink);
      configure(maps, table);
      const links = new Map(attachPrograms(programs.sockets, group, pinPath, hooks(table)));
      listen(maps);
      for (const link of loaded?.links.values() ?? []) link.close();
      if (loaded && !kept) closeAllPrograms(loaded.programs);
      if (earlier && !same) closeMaps(earlier.maps, maps);
      return { maps, capacity, table, links, programs };
    } catch (error) {
      if (!same) closeMaps(maps, earlier?.maps ?? null);
      if (programs && !kept) closeAllPrograms(programs);
      throw error;
    }
  }

  function controlGroup(): string {
    cgroup ??= defaultControlGroup();
    makeControlGroup(cgroup);
    return cgroup;
  }

  async function sync(map: ServiceMap): Promise<ApplyReport> {
    // Before anything is written: a machine that cannot do it is left as it is.
    if (!loaded) {
      checkRequirements();
      if (attachment === undefined) {
        attachment = deviceAttachment(netns);
        if (attachment === null) {
          const hint = 'load the kernel modules sch_ingress and cls_bpf, or use Linux 6.6';
          logger.warn({ hint }, 'no programs at devices: connections under way cannot leave dead endpoints');
        }
      }
    }
    current = map;
    const started = performance.now();
    const below = await floor.sync(map);
    const between = performance.now();
    try {
      await program(map);
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
    sync: (map) => calls.run(() => sync(map)),

    apply: (change, map) =>
      calls.run(async () => {
        if (!loaded || change.node) return await sync(map);
        current = map;
        const started = performance.now();
        try {
          loaded.table.apply(change, map, sinkOf(loaded.maps));
          reconfigure(loaded);
        } catch (error) {
          if (!(error instanceof CapacityExceeded)) {
            logger.warn({ error: messageOf(error) }, 'writing the BPF maps anew');
          }
          await program(map);
        }
        const between = performance.now();
        const below = await floor.apply(change, map);
        return report(below, performance.now() - between, between - started);
      }),

    verify: () =>
      calls.run(async () => {
        if (!current || !loaded || !cgroup) return await floor.verify();
        const wanted = configValue(settings(loaded.table));
        return [
          ...compareWithMaps({ ...loaded, hooks: hooks(loaded.table), attachments }, wanted, cgroup, pinPath),
          ...(await floor.verify()),
        ];
      }),

    locate: (frontend, packet) => [
      ...(loaded ? locateSteps(loaded.table, frontend, packet) : []),
      ...floor.locate(frontend, packet),
    ],

    endConnections(endpoints) {
      if (!loaded || !cgroup) return 0;
      return endConnections(endpoints, loaded.maps, { cgroup, netns: netns ?? null });
    },

    watchFlows(onEvent) {
      // As a function of its own: the same may watch twice.
      const watcher = (event: FlowEvent) => onEvent(event);
      const update = () => {
        if (loaded) reconfigure(loaded);
      };
      flowWatchers.add(watcher);
      update();
      return {
        close() {
          flowWatchers.delete(watcher);
          update();
        },
      };
    },

    async close() {
      flowWatchers.clear();
      if (loaded) reconfigure(loaded);
      release();
      await floor.close();
    },

    remove: (options) =>
      calls.run(async () => {
        const removeRest = () => removeFilters(netns);
        if (options?.succeeded) leavePins(pinPath, clock, removeRest);
        else {
          removePins(pinPath);
          removeRest();
        }
        release();
        current = null;
        await floor.remove(options);
      }),
  };

  function release(): void {
    cancelSweep();
    ring?.close();
    ring = null;
    attachments?.close();
    attachments = null;
    for (const link of loaded?.links.values() ?? []) link.close();
    if (loaded) {
      closeMaps(loaded.maps);
      closeAllPrograms(loaded.programs);
    }
    loaded = null;
  }
}

function closeAllPrograms({ sockets, devices }: Loaded['programs']): void {
  closePrograms(sockets);
  closePrograms(devices);
}

function holds(has: Capacity, wanted: Capacity): boolean {
  return every((name) => has[name] >= wanted[name]);
}

function sameCapacity(a: Capacity, b: Capacity): boolean {
  return every((name) => a[name] === b[name]);
}

function every(test: (name: keyof Capacity) => boolean): boolean {
  return (['frontends', 'endpoints', 'backends', 'members'] as const).every(test);
}
