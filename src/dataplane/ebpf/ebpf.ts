import { EJECTION_RULES } from '../../failover/ejection-rules.ts';
import type { Outcome } from '../../failover/outcome.ts';
import { jiffies } from '../../kernel/bpf/jiffies.ts';
import type { BpfLink } from '../../kernel/bpf/link.ts';
import { netnsCookie } from '../../kernel/bpf/netns-cookie.ts';
import type { AttachPoint } from '../../kernel/bpf/program.ts';
import { type RingReader, readRing } from '../../kernel/bpf/ring-buffer.ts';
import { makeControlGroup } from '../../kernel/control-group.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import { createMutex } from '../../lib/semaphore.ts';
import type { Change, ServiceMap } from '../../service/model.ts';
import { type Abilities, type FlowSource, NO_ABILITIES, type OwnConnections } from '../abilities.ts';
import type { ApplyReport, Dataplane, DataplaneOptions } from '../dataplane.ts';
import type { FlowEvent, OnFlowEvent } from '../flow-event.ts';
import { abortConnections } from './abort-connections.ts';
import { DeviceAttachments } from './device-programs.ts';
import { configValue, type Settings } from './entries.ts';
import { drainPins, expireFailures, expireReroutes } from './expiry.ts';
import { outcomeOf, readFlowEvent } from './flow-events.ts';
import { ForwardingTable } from './forwarding-table.ts';
import { MAPS } from './generated/layout.ts';
import { cgroupHooks } from './hooks.ts';
import { locateSteps } from './locate.ts';
import { EMPTY, readContents } from './map-contents.ts';
import {
  type Capacity,
  closeMaps,
  doubled,
  indexKey,
  isCapacity,
  type Maps,
  makeMaps,
  openMaps,
  pinMaps,
  sinkOf,
} from './maps.ts';
import { refuseOtherAgents } from './other-agents.ts';
import {
  DEFAULT_PIN_PATH,
  makePins,
  pinDirectory,
  removeLinks,
  removeOtherVersions,
  removePins,
} from './pins.ts';
import { FALLBACK_TABLE } from './plan.ts';
import {
  attachProgram,
  attachPrograms,
  brokenLinks,
  closePrograms,
  defaultControlGroup,
  loadPrograms,
  type Programs,
} from './programs.ts';
import { createRejectedClients } from './rejected-clients.ts';
import { checkRequirements, deviceAttachment } from './requirements.ts';
import { capacityFor } from './sizing.ts';
import { clsactAttachment, isDeviceLink, removeFilters, tcxAttachment } from './tc-attachment.ts';
import { compareWithMaps } from './verify.ts';

/** The options of the fallback dataplane. */
export interface FallbackOptions extends DataplaneOptions {
  /** The name of its tables, different from the name in nftables mode: during a switch a node has both. */
  readonly table: string;
}

export interface EbpfOptions extends Omit<DataplaneOptions, 'owned'> {
  /** Opens the dataplane for traffic that does not pass a socket of this node: the nftables mode. */
  readonly fallback: (options: FallbackOptions) => Dataplane;
  /**
   * Directory of the cgroup v2 hierarchy whose processes, including those in groups below, are
   * load-balanced at their sockets; created if missing. Default: the hierarchy's root, which contains every
   * process of this machine.
   */
  readonly cgroup?: string;
  /** Why this node cannot run the mode: `sync` throws it. State of an earlier agent is removed all the same. */
  readonly obstacle?: FairleadError;
  /** The directory of pinned links and maps, one for each node. Default: /sys/fs/bpf/fairlead. */
  readonly pinPath?: string;
  /** False: the programs neither eject endpoints nor reroute connections. Default: true. */
  readonly failover?: boolean;
  /**
   * Called for endpoints that did not answer or refused a connection, and for their first answer after
   * that.
   */
  readonly onOutcome?: (outcome: Outcome) => void;
  /**
   * How programs are attached to devices. Default: by links (tcx) if the kernel has them, otherwise as
   * filters.
   */
  readonly attachment?: 'tcx' | 'clsact';
}

export interface EbpfDataplane extends Dataplane {
  readonly abilities: Abilities & {
    /** Connections of sockets, which are aborted. */
    readonly connections: OwnConnections;
    /** Makes the programs slower while it is watched. */
    readonly flows: FlowSource;
  };
}

const EXPIRY_MS = 30_000;
const CONFIG_KEY = indexKey(0);
const ATTACHMENT_HINT = 'load the kernel modules sch_ingress and cls_bpf, or use Linux 6.6';

interface Loaded {
  readonly maps: Maps;
  readonly capacity: Capacity;
  readonly table: ForwardingTable;
  readonly links: Map<AttachPoint, BpfLink>;
  readonly programs: Programs;
}

/** The settings of the mode on a node, and its open parts. */
interface EbpfNode {
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly failover: boolean;
  readonly onOutcome: EbpfOptions['onOutcome'];
  readonly pinPath: string;
  readonly flowSubscribers: Set<(event: FlowEvent) => void>;
  /** Null: the default one, which is not known yet. */
  cgroup: string | null;
  loaded: Loaded | null;
  /** The map of the last call; null: none, or removed. */
  current: ServiceMap | null;
  attachments: DeviceAttachments | null;
  ring: RingReader | null;
  cancelExpiry: () => void;
  /** Undefined: not probed yet. Null: not supported by the kernel, or failover is disabled. */
  attachment: 'tcx' | 'clsact' | null | undefined;
}

/**
 * Creates the eBPF mode: sockets of pods and of the node connect directly to an endpoint; all other traffic
 * is handled by the nftables mode's rules in a separate table, from the same Service map. Programs and maps
 * are pinned and outlive this process.
 */
export function createEbpf(options: EbpfOptions): EbpfDataplane {
  const { families, netns, logger = silentLogger, clock = systemClock, onForeignChange } = options;
  const { failover = true, onOutcome, pinPath = DEFAULT_PIN_PATH } = options;
  const fallback = options.fallback({
    families,
    netns,
    logger,
    clock,
    onForeignChange,
    table: FALLBACK_TABLE,
  });
  const node: EbpfNode = {
    ...{ netns, logger, clock, failover, onOutcome, pinPath },
    flowSubscribers: new Set(),
    cgroup: options.cgroup ?? null,
    loaded: null,
    current: null,
    attachments: null,
    ring: null,
    cancelExpiry: () => {},
    attachment: failover ? options.attachment : null,
  };
  const calls = createMutex();

  return {
    mode: 'ebpf',
    families,
    sync: (map) => calls.run(() => sync(node, fallback, options.obstacle, map)),

    apply: (change, map) =>
      calls.run(async () => {
        if (!node.loaded || change.node) return await sync(node, fallback, options.obstacle, map);
        node.current = map;
        const started = performance.now();
        if (!applyToMaps(node, node.loaded, change, map)) await program(node, map);
        const between = performance.now();
        const below = await fallback.apply(change, map);
        return report(node, below, performance.now() - between, between - started);
      }),

    verify: () =>
      calls.run(async () => {
        if (!node.current || !node.loaded || !node.cgroup) return await fallback.verify();
        const { maps, table, links } = node.loaded;
        const pins = pinDirectory(node.pinPath);
        const broken = [
          ...brokenLinks(links, node.cgroup, node.pinPath, hooks(node, table)),
          ...(node.attachments?.missing() ?? []),
        ];
        return [
          ...broken.map((name) => ({ object: `bpf: ${pins}, link-${name}`, kind: 'missing' as const })),
          ...compareWithMaps(maps, table, configValue(settings(node, table)), pins),
          ...(await fallback.verify()),
        ];
      }),

    locate(frontend, packet) {
      const steps = node.loaded ? locateSteps(node.loaded.table, frontend, packet) : [];
      // Flows that a program translates or refuses at the socket do not reach the tables.
      return steps.length > 0 ? steps : fallback.locate(frontend, packet);
    },

    abilities: {
      ...NO_ABILITIES,
      connections: {
        async end(endpoints) {
          if (!node.loaded || !node.cgroup) return 0;
          return abortConnections(endpoints, node.loaded.maps, {
            cgroup: node.cgroup,
            netns: node.netns ?? null,
          });
        },
        drain: null,
      },
      flows: { watch: (onEvent) => watch(node, onEvent), isComplete: false },
    },

    async close() {
      node.flowSubscribers.clear();
      if (node.loaded) reconfigure(node, node.loaded);
      release(node);
      await fallback.close();
    },

    remove: (options) =>
      calls.run(async () => {
        const onRemoved = () => removeFilters(node.netns);
        if (options?.succeeded) drainPins(node.pinPath, node.clock, onRemoved);
        else {
          removePins(node.pinPath);
          onRemoved();
        }
        release(node);
        node.current = null;
        await fallback.remove(options);
      }),
  };
}

/** Programs the fallback, then the maps and programs. */
async function sync(
  node: EbpfNode,
  fallback: Dataplane,
  obstacle: FairleadError | undefined,
  map: ServiceMap,
): Promise<ApplyReport> {
  // Before any write: a machine that does not meet the requirements stays unchanged.
  if (!node.loaded) {
    if (obstacle) throw obstacle;
    checkRequirements();
    refuseOtherAgents(node.cgroup ?? defaultControlGroup(), node.pinPath);
    if (node.attachment === undefined) {
      node.attachment = deviceAttachment(node.netns);
      if (node.attachment === null)
        node.logger.warn(
          { hint: ATTACHMENT_HINT },
          'cannot attach programs to devices: pending connections are not rerouted',
        );
    }
  }
  node.current = map;
  const started = performance.now();
  const below = await fallback.sync(map);
  const between = performance.now();
  try {
    await program(node, map);
  } catch (error) {
    if (error instanceof FairleadError) throw error;
    throw new FairleadError(`failed to set up the eBPF programs: ${messageOf(error)}`, {
      op: 'sync eBPF mode',
      code: 'EIO',
      cause: error,
    });
  }
  return report(node, below, between - started, performance.now() - between);
}

/** Returns false if the maps have to be written again: they are too small, or a write failed. */
function applyToMaps(node: EbpfNode, loaded: Loaded, change: Change, map: ServiceMap): boolean {
  try {
    if (loaded.table.apply(change, map, sinkOf(loaded.maps)) === 'full') return false;
    reconfigure(node, loaded);
    return true;
  } catch (error) {
    node.logger.warn({ error: messageOf(error) }, 'failed to change the BPF maps: writing all of them');
    return false;
  }
}

function settings(node: EbpfNode, table: ForwardingTable): Settings {
  const reroute = (node.attachment ?? null) !== null;
  return {
    nodeCookie: netnsCookie(node.netns ?? null),
    synTimeout: node.failover ? jiffies(EJECTION_RULES.programUnansweredMs) : 0,
    ejection: node.failover,
    reroute,
    removedBackends: reroute && table.hasRemovedBackends,
    subscribers: node.flowSubscribers.size > 0,
  };
}

function hooks(node: EbpfNode, table: ForwardingTable): ReadonlySet<AttachPoint> {
  const { removedBackends, subscribers } = settings(node, table);
  return cgroupHooks(removedBackends || subscribers);
}

function configure(node: EbpfNode, maps: Maps, table: ForwardingTable): void {
  const wanted = configValue(settings(node, table));
  const found = maps.config.lookup(CONFIG_KEY);
  if (!found || Buffer.compare(found, wanted) !== 0) maps.config.update(CONFIG_KEY, wanted);
}

/** Configures the programs after a change of the table or of the subscribers. */
function reconfigure(node: EbpfNode, { maps, table, links, programs }: Loaded): void {
  configure(node, maps, table);
  const hook = 'inetEgress';
  const isWanted = hooks(node, table).has(hook);
  const link = links.get(hook);
  const program = programs.sockets.get(hook);
  if (isWanted === (link !== undefined)) return;
  link?.close();
  links.delete(hook);
  if (isWanted && program && node.cgroup)
    links.set(hook, attachProgram(program, hook, node.cgroup, node.pinPath).link);
  else removeLinks(node.pinPath, (name) => name === hook);
}

function listen(node: EbpfNode, maps: Maps, group: string): void {
  const clients = createRejectedClients({ cgroup: group, netns: node.netns ?? null }, node.clock);
  node.ring ??= readRing(maps.events.fd, MAPS.events.maxEntries, (record) => {
    const event = readFlowEvent(record, clients);
    if (!event) return;
    const outcome = outcomeOf(event);
    if (outcome) node.onOutcome?.(outcome);
    for (const subscriber of node.flowSubscribers) subscriber(event);
  });
  scheduleExpiry(node);
}

function scheduleExpiry(node: EbpfNode): void {
  node.cancelExpiry();
  node.cancelExpiry = node.clock.after(EXPIRY_MS, () => {
    if (!node.loaded) return;
    const { maps, table } = node.loaded;
    expireReroutes(maps, process.hrtime.bigint());
    expireFailures(maps, (number) => table.usesBackend(number));
    scheduleExpiry(node);
  });
}

/** Fills the maps and attaches the programs, adopting existing ones if they are large enough. */
async function program(node: EbpfNode, map: ServiceMap): Promise<void> {
  node.cgroup ??= defaultControlGroup();
  makeControlGroup(node.cgroup);
  makePins(node.pinPath);
  const earlier = node.loaded ?? openMaps(node.pinPath);
  const wanted = capacityFor(map);
  const isEnough = earlier !== null && isCapacity((a, b) => a >= b, earlier.capacity, wanted);
  for (let capacity = isEnough ? earlier.capacity : wanted; ; capacity = doubled(capacity)) {
    const loaded = await install(node, map, capacity, earlier, node.cgroup);
    if (!loaded) continue;
    node.loaded = loaded;
    return;
  }
}

/** Returns null if the maps are too small. */
async function install(
  node: EbpfNode,
  map: ServiceMap,
  capacity: Capacity,
  earlier: Pick<Loaded, 'maps' | 'capacity'> | null,
  group: string,
): Promise<Loaded | null> {
  const same = earlier !== null && isCapacity((a, b) => a === b, earlier.capacity, capacity);
  const maps = same ? earlier.maps : makeMaps(capacity, earlier?.maps ?? null);
  // The verifier takes a tenth of a second: programs that already use these maps are kept.
  const kept = same && node.loaded !== null ? node.loaded.programs : null;
  let programs = kept;
  const discard = () => {
    if (!same) closeMaps(maps, earlier?.maps ?? null);
    if (programs && !kept) closePrograms(programs);
  };
  try {
    programs ??= await loadPrograms(maps);
    const found = earlier ? readContents(earlier.maps) : EMPTY;
    const table = new ForwardingTable(capacity, node.clock, !same);
    // If maps are replaced, only the frontends' ids and the removed endpoints are adopted.
    const { frontends, removedBackends } = found;
    const left = same ? found : { ...EMPTY, frontends, removedBackends };
    if (table.fill(map, left, sinkOf(maps)) === 'full') {
      discard();
      return null;
    }
    pinMaps(maps, node.pinPath);
    // Before the sockets' programs: a connection may have to be rerouted as soon as it is balanced.
    if (node.attachment) {
      const create = () =>
        node.attachment === 'tcx' ? tcxAttachment(node.pinPath, node.netns) : clsactAttachment(node.netns);
      node.attachments ??= new DeviceAttachments({
        attachment: create(),
        netns: node.netns,
        logger: node.logger,
      });
      node.attachments.use(programs.devices);
    } else removeLinks(node.pinPath, isDeviceLink);
    configure(node, maps, table);
    const links = attachPrograms(programs, group, node.pinPath, hooks(node, table));
    removeOtherVersions(node.pinPath);
    listen(node, maps, group);
    for (const link of node.loaded?.links.values() ?? []) link.close();
    if (node.loaded && !kept) closePrograms(node.loaded.programs);
    if (earlier && !same) closeMaps(earlier.maps, maps);
    return { maps, capacity, table, links, programs };
  } catch (error) {
    discard();
    throw error;
  }
}

function report(node: EbpfNode, below: ApplyReport, fallbackMs: number, ownMs: number): ApplyReport {
  const keys = new Set(below.failed.map(({ key }) => key));
  const failed = [...(node.loaded?.table.failed ?? [])].map(([key, error]) => ({ key, error }));
  for (const { key, error } of failed) {
    node.logger.warn({ frontend: key, error: messageOf(error) }, 'frontend is left to nf_tables');
  }
  return {
    encodeMs: below.encodeMs,
    kernelMs: fallbackMs - below.encodeMs + ownMs,
    operations: below.operations + (node.loaded?.table.takeOperations() ?? 0),
    failed: [...below.failed, ...failed.filter(({ key }) => !keys.has(key))],
  };
}

function release(node: EbpfNode): void {
  node.cancelExpiry();
  node.ring?.close();
  node.ring = null;
  node.attachments?.close();
  node.attachments = null;
  if (!node.loaded) return;
  for (const link of node.loaded.links.values()) link.close();
  closeMaps(node.loaded.maps);
  closePrograms(node.loaded.programs);
  node.loaded = null;
}

function watch(node: EbpfNode, onEvent: OnFlowEvent): { close(): void } {
  // Wrapped in a new function: the same callback may subscribe twice.
  const subscriber = (event: FlowEvent) => onEvent(event);
  const update = () => {
    if (node.loaded) reconfigure(node, node.loaded);
  };
  node.flowSubscribers.add(subscriber);
  update();
  return {
    close() {
      node.flowSubscribers.delete(subscriber);
      update();
    },
  };
}
