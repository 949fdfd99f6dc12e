import { describeServer, type ServerId, type VirtualServer } from '../../kernel/ipvs/codec.ts';
import type { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import type { NftBatch } from '../../kernel/nftables/batch.ts';
import type { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { addressBytes, cidrContains, type IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import {
  type Change,
  type Frontend,
  type FrontendKey,
  type NodeView,
  type Pool,
  type ServiceMap,
  SOURCE_CLASSES,
} from '../../service/model.ts';
import type { ApplyReport } from '../dataplane.ts';
import { ALIAS, type FrontendPlan, type PlannedServer, planFrontend } from './frontend-plan.ts';
import { applySettings } from './kernel-settings.ts';
import { TABLE } from './layout.ts';
import { LEAVING_TABLE } from './leaving-table.ts';
import { type MarkScheme, markScheme, NumberTable, PORTS } from './marks.ts';
import type { IpvsOptions } from './options.ts';
import { ownership } from './ownership.ts';
import { rememberNumbers } from './remembered-numbers.ts';
import type { SchedulerProbe } from './scheduler-probe.ts';
import { type Commands, newCommands, ServerTable, send, serverKey, serverOrder } from './server-table.ts';
import { changeAddresses, ensureInterface, isLocal, readAddresses } from './service-interface.ts';
import { restoreSources } from './source-addresses.ts';
import { SteeringTable } from './steering-table.ts';

/** A transaction is tried again this often when others commit in between. */
const ATTEMPTS = 8;
/** Beyond so many, addresses are looked up by one listing. */
const MOST_LOOKUPS = 50;

/** What of the kernel is spoken to. */
export interface Kernel {
  readonly families: readonly IPFamily[];
  readonly netns: NetnsRef | undefined;
  readonly ipvs: IpvsConnection;
  readonly nft: NftConnection;
  readonly probe: SchedulerProbe;
  readonly clock: Clock;
  readonly options: IpvsOptions;
}

/** What was programmed, as it is in the kernel. */
export interface Programmed {
  readonly node: NodeView;
  readonly device: number;
  readonly servers: ServerTable;
  readonly scheme: MarkScheme;
  readonly marks: NumberTable;
  readonly aliases: NumberTable;
  readonly tables: ReadonlyMap<IPFamily, SteeringTable>;
  readonly plans: Map<FrontendKey, FrontendPlan>;
  /** Addresses of our interface. */
  readonly bound: Set<string>;
  /** Addresses of the node's other devices, when we looked last. */
  others: ReadonlySet<string>;
  /** How many frontends and cluster IPs stand on an address. */
  readonly uses: Map<string, number>;
  readonly failed: Map<FrontendKey, Error>;
  /** Virtual servers of other programs, by `serverKey`: never touched, not even where a Service wants the same. */
  readonly foreign: Set<string>;
  /** All servers that there were have been looked at. */
  isListed: boolean;
  /** The kernel refused something: this is not what it has. */
  isStale: boolean;
}

/** Makes the kernel equal to a map, whatever is there now. `before`: what this process programmed, if anything. */
export async function applyMap(
  kernel: Kernel,
  map: ServiceMap,
  before: Programmed | null,
  owned: boolean,
): Promise<{ programmed: Programmed; report: ApplyReport }> {
  const { families, netns, ipvs, clock, options } = kernel;
  const { node } = map;
  const started = performance.now();
  const fault = await kernel.probe.check(options.scheduler ?? node.ipvsScheduler);
  if (fault) throw fault;
  let wasLeaving = false;
  for (const family of families) {
    const protocol = NFPROTO[family];
    // A mode of before leaves no more: what there is of its servers is taken over.
    if (!kernel.nft.tables(protocol).some(({ name }) => name === LEAVING_TABLE)) continue;
    await kernel.nft.removeTable(protocol, LEAVING_TABLE);
    wasLeaving = true;
  }
  if (options.timeouts) ipvs.setTimeouts(options.timeouts);
  const device = ensureInterface(netns);
  applySettings(node.localhostNodePorts && families.includes('ipv4'), netns);
  const { ours, others } = readAddresses(device, netns);
  if (wasLeaving) restoreSources(device, ours, netns);
  const scheme = markScheme(node.masqueradeBit);
  const isOurs = ownership(scheme, ours, families);
  const standing = ipvs.servers();
  // Who began with an empty table, or has read what an earlier run left, knows what is his.
  const isForeign = ({ id }: VirtualServer) => !isOurs(id) || (before !== null && !isKnown(before, id));
  const state: Programmed = {
    node,
    device,
    servers: new ServerTable(),
    scheme,
    marks: new NumberTable(scheme),
    aliases: new NumberTable(PORTS),
    tables: new Map(families.map((family) => [family, new SteeringTable(family, node, scheme)])),
    plans: new Map(),
    bound: new Set(),
    others,
    uses: new Map(),
    failed: new Map(),
    isListed: false,
    foreign: new Set(standing.filter(isForeign).map(({ id }) => serverKey(id))),
    isStale: false,
  };
  const now = clock.now();
  for (const server of standing) {
    if (state.foreign.has(serverKey(server.id))) continue;
    state.servers.adopt(server, ipvs.realServers(server.id), before?.servers ?? null, now);
    const numbers = numbersOf(state, server.id);
    numbers?.table.reserve(numbers.number);
  }
  rememberNumbers(kernel, state, map);
  const read = performance.now();

  for (const family of families) use(state, ALIAS[family], 1);
  const frontends = [...map.frontends.values()].filter(({ family }) => families.includes(family));
  for (const { address } of frontends) if (address !== null) use(state, address, 1);
  for (const ip of map.clusterIPs.keys()) if (isOfFamilies(kernel, ip)) use(state, ip, 1);
  for (const ip of state.uses.keys()) if (!others.has(ip)) state.bound.add(ip);

  const early = newCommands(ipvs);
  const late = newCommands(ipvs);
  const remove = newCommands(ipvs);
  const wanted = new Set<string>();
  const all: { readonly planned: PlannedServer; readonly frontend: Frontend }[] = [];
  for (const frontend of frontends) {
    const plan = await makePlan(kernel, state, frontend);
    if (!plan) continue;
    state.plans.set(frontend.key, plan);
    for (const planned of plan.servers) all.push({ planned, frontend });
  }
  state.isListed = true;
  all.sort((a, b) => serverOrder(a.planned.server.id, b.planned.server.id));
  for (const { planned, frontend } of all) {
    const { id } = planned.server;
    wanted.add(serverKey(id));
    const isLate = 'address' in id && !ours.has(id.address);
    const waits = frontend.protocol !== 'UDP';
    state.servers.set(planned, frontend.key, waits, now, isLate ? late : early, remove);
  }
  for (const id of state.servers.ids) if (!wanted.has(serverKey(id))) drop(state, id, true, now, remove);
  for (const ip of state.servers.heldAddresses()) state.bound.add(ip);
  const encoded = performance.now();

  await send(ipvs, early, reporter(state));
  let operations = early.batch.length;
  for (const table of state.tables.values()) {
    operations += await replaceTable(kernel, table, owned, (batch) => {
      for (const plan of state.plans.values()) {
        if (plan.frontend.family === table.family) table.setFrontend(batch, plan);
      }
      for (const ip of state.bound) if (table.isOurs(ip)) table.setAddress(batch, ip, true);
      for (const ip of map.hairpinAddresses) if (table.isOurs(ip)) table.setHairpin(batch, ip, true);
    });
  }
  const missing = [...state.bound].filter((ip) => !ours.has(ip));
  await changeAddresses(device, missing, [], netns);
  await send(ipvs, late, reporter(state));
  await send(ipvs, remove, reporter(state));
  const extra = [...ours].filter((ip) => !state.bound.has(ip) && isOfFamilies(kernel, ip));
  await changeAddresses(device, [], extra, netns);
  operations += late.batch.length + remove.batch.length + missing.length + extra.length;
  return {
    programmed: state,
    report: {
      operations,
      encodeMs: encoded - read,
      kernelMs: read - started + performance.now() - encoded,
      failed: failures(state),
    },
  };
}

/** Applies a change to what was programmed. */
export async function applyChange(
  kernel: Kernel,
  state: Programmed,
  change: Change,
  map: ServiceMap,
): Promise<ApplyReport> {
  const { ipvs, netns, clock } = kernel;
  const started = performance.now();
  const now = clock.now();
  const changes = change.frontends.filter(({ before, after }) =>
    kernel.families.includes((after ?? before)?.family ?? 'ipv4'),
  );
  const touched = new Set<string>();
  const count = (ip: string, by: number) => {
    use(state, ip, by);
    touched.add(ip);
  };
  for (const { before, after } of changes) {
    if (after && !before && after.address !== null) count(after.address, 1);
    if (before && !after && before.address !== null) count(before.address, -1);
  }
  for (const ip of change.clusterIPs.added) if (isOfFamilies(kernel, ip)) count(ip, 1);
  for (const ip of change.clusterIPs.removed) if (isOfFamilies(kernel, ip)) count(ip, -1);

  // Held addresses stand there already.
  const appeared = [...touched].filter((ip) => state.uses.has(ip) && !state.bound.has(ip));
  noteOthers(state, appeared, netns);
  const added = appeared.filter((ip) => !state.others.has(ip));
  for (const ip of added) state.bound.add(ip);

  const early = newCommands(ipvs);
  const late = newCommands(ipvs);
  const remove = newCommands(ipvs);
  const batches = new Map<IPFamily, NftBatch>();
  const batchOf = (table: SteeringTable): NftBatch => {
    const batch = batches.get(table.family) ?? kernel.nft.batch(table.layout.protocol);
    batches.set(table.family, batch);
    return batch;
  };
  for (const { key, after, before } of changes) {
    const table = state.tables.get((after ?? before)?.family ?? 'ipv4');
    if (!table) continue;
    state.failed.delete(key);
    const old = state.plans.get(key) ?? null;
    const plan = after && (await makePlan(kernel, state, after));
    for (const planned of plan?.servers ?? []) {
      const { id } = planned.server;
      const isLate = 'address' in id && added.includes(id.address);
      const waits = plan?.frontend.protocol !== 'UDP';
      state.servers.set(planned, key, waits, now, isLate ? late : early, remove);
    }
    const kept = new Set(plan?.servers.map(({ server }) => serverKey(server.id)));
    for (const { server, slot } of old?.servers ?? []) {
      if (kept.has(serverKey(server.id))) continue;
      if (slot !== null) numbersOf(state, server.id)?.table.forget(slot);
      drop(state, server.id, old?.frontend.protocol !== 'UDP', now, remove);
    }
    if (plan) {
      state.plans.set(key, plan);
      table.setFrontend(batchOf(table), plan);
    } else {
      state.plans.delete(key);
      table.deleteFrontend(batchOf(table), key);
    }
  }
  for (const table of state.tables.values()) {
    for (const ip of added) if (table.isOurs(ip)) table.setAddress(batchOf(table), ip, true);
    for (const [list, on] of [
      [change.hairpinAddresses.added, true],
      [change.hairpinAddresses.removed, false],
    ] as const) {
      for (const ip of list) if (table.isOurs(ip)) table.setHairpin(batchOf(table), ip, on);
    }
  }
  const encoded = performance.now();
  await send(ipvs, early, reporter(state));
  let operations = early.batch.length + late.batch.length + remove.batch.length + added.length;
  for (const batch of batches.values()) {
    await kernel.nft.commit(batch);
    operations += batch.operations;
  }
  if (added.length > 0) await changeAddresses(state.device, added, [], netns);
  await send(ipvs, late, reporter(state));
  await send(ipvs, remove, reporter(state));
  if (touched.size > 0) operations += await releaseAddresses(kernel, state, touched);
  void map;
  return {
    operations,
    encodeMs: encoded - started,
    kernelMs: performance.now() - encoded,
    failed: failures(state),
  };
}

/** Removes servers whose connections have ended, or are over by `isOver`, and addresses that only they needed. */
export async function collectDrained(
  kernel: Kernel,
  state: Programmed,
  isOver: (real: { address: string; port: number; drainingSince: number | null }) => boolean,
): Promise<void> {
  const remove = newCommands(kernel.ipvs);
  const held = state.servers.heldAddresses();
  const deleted = state.servers.collect((id) => kernel.ipvs.realServers(id), isOver, remove);
  await send(kernel.ipvs, remove, reporter(state));
  for (const id of deleted) freeNumber(state, id);
  if (held.size > 0) await releaseAddresses(kernel, state, held);
}

/** Notes which addresses, that are not on our interface, other devices of the node have. */
function noteOthers(state: Programmed, addresses: readonly string[], netns: NetnsRef | undefined): void {
  if (addresses.length > MOST_LOOKUPS) {
    state.others = readAddresses(state.device, netns).others;
    return;
  }
  if (addresses.length === 0) return;
  const others = new Set(state.others);
  for (const address of addresses) {
    if (isLocal(address, netns)) others.add(address);
    else others.delete(address);
  }
  state.others = others;
}

/** Takes addresses that nothing needs any more from our interface. */
async function releaseAddresses(
  kernel: Kernel,
  state: Programmed,
  candidates: Iterable<string>,
): Promise<number> {
  const held = state.servers.heldAddresses();
  const gone = [...candidates].filter((ip) => state.bound.has(ip) && !state.uses.has(ip) && !held.has(ip));
  if (gone.length === 0) return 0;
  for (const ip of gone) state.bound.delete(ip);
  await changeAddresses(state.device, [], gone, kernel.netns);
  let operations = gone.length;
  for (const table of state.tables.values()) {
    const batch = kernel.nft.batch(table.layout.protocol);
    for (const ip of gone) if (table.isOurs(ip)) table.setAddress(batch, ip, false);
    await kernel.nft.commit(batch);
    operations += batch.operations;
  }
  return operations;
}

/**
 * Ends a server that no frontend wants. Its connections are waited for where its address stays here meanwhile: that
 * is, where another port of it is wanted, or where it is a cluster IP, which nobody else can have. A load balancer's
 * address may be somebody else's by now.
 */
function drop(state: Programmed, id: ServerId, drains: boolean, now: number, remove: Commands): void {
  const stays =
    'mark' in id ||
    (!state.others.has(id.address) &&
      (state.uses.has(id.address) || state.node.serviceCidrs.some((cidr) => cidrContains(cidr, id.address))));
  const gone = state.servers.drop(id, drains && stays, now, remove);
  if (gone) freeNumber(state, id);
}

/** The number that a server goes by, where it has no address of its own. */
function numbersOf(state: Programmed, id: ServerId): { table: NumberTable; number: number } | null {
  if ('mark' in id) return { table: state.marks, number: id.mark };
  return id.address === ALIAS[id.family] ? { table: state.aliases, number: id.port } : null;
}

function freeNumber(state: Programmed, id: ServerId): void {
  const numbers = numbersOf(state, id);
  numbers?.table.free(numbers.number);
}

/** Marks are ours whoever says otherwise; on addresses of our interface others may have servers of their own. */
function isKnown({ servers }: Programmed, id: ServerId): boolean {
  return 'mark' in id || servers.has(id);
}

/** How a frontend is carried out, or null (and noted as failed) when it cannot be. */
async function makePlan(kernel: Kernel, state: Programmed, frontend: Frontend): Promise<FrontendPlan | null> {
  const standard = kernel.options.scheduler ?? state.node.ipvsScheduler;
  let scheduler = frontend.options.ipvsScheduler ?? standard;
  if (scheduler !== standard) {
    const error = await kernel.probe.check(scheduler);
    if (error) {
      // Served all the same: a Service that is balanced otherwise is better than none. To try again changes nothing.
      state.failed.set(
        frontend.key,
        new FairleadError(`${error.message}; ${standard} is used instead`, {
          op: error.op,
          code: 'unsupported',
          ...(error.hint === undefined ? {} : { hint: error.hint }),
          object: error.object ?? scheduler,
        }),
      );
      scheduler = standard;
    }
  }
  const { address, family } = frontend;
  const length = family === 'ipv4' ? 4 : 16;
  let bad = address !== null && addressBytes(address)?.length !== length ? address : undefined;
  for (const ip of endpointAddresses(frontend)) if (addressBytes(ip)?.length !== length) bad ??= ip;
  if (bad !== undefined) {
    state.failed.set(
      frontend.key,
      new FairleadError(`${JSON.stringify(bad)} is no ${family === 'ipv4' ? 'IPv4' : 'IPv6'} address`, {
        op: 'program IPVS',
        code: 'EINVAL',
        object: bad,
      }),
    );
    return null;
  }
  const bound = address !== null && state.bound.has(address);
  try {
    const plan = planFrontend(frontend, { bound, marks: state.marks, aliases: state.aliases, scheduler });
    const taken = plan.servers.find(({ server: { id } }) => {
      // Listed when everything is programmed; what came since is asked for.
      if (state.isListed && !('mark' in id) && !state.servers.has(id) && kernel.ipvs.hasServer(id)) {
        state.foreign.add(serverKey(id));
      }
      return state.foreign.has(serverKey(id));
    });
    if (!taken) return plan;
    state.failed.set(frontend.key, foreignError(taken.server.id));
    return null;
  } catch (error) {
    if (!hasCode(error, 'ENOSPC')) throw error;
    state.failed.set(frontend.key, error as FairleadError);
    return null;
  }
}

function foreignError(id: ServerId): FairleadError {
  const object = `virtual server ${describeServer(id)}`;
  return new FairleadError(`another program has the ${object}`, {
    op: 'program IPVS',
    code: 'EEXIST',
    object,
    hint: 'remove it there, or keep that program from this address',
  });
}

function* endpointAddresses(frontend: Frontend): Generator<string> {
  const pools = new Set<Pool>();
  for (const source of SOURCE_CLASSES) {
    const route = frontend.routes[source];
    if (route.action === 'forward') pools.add(route.pool);
  }
  for (const { endpoints } of pools) for (const { ip } of endpoints) yield ip;
}

/** Writes a family's table anew, in one transaction. Returns how many operations it took. */
async function replaceTable(
  { nft }: Kernel,
  table: SteeringTable,
  owned: boolean,
  fill: (batch: NftBatch) => void,
): Promise<number> {
  const { protocol } = table.layout;
  let filled = false;
  for (let attempt = 1; ; attempt++) {
    const generation = nft.generation();
    const replace = nft.tables(protocol).some(({ name }) => name === TABLE);
    const batch = nft.batch(protocol, {
      capacity: 1 << 18,
      ...(attempt < ATTEMPTS ? { generation } : {}),
    });
    table.create(batch, { owned, replace });
    if (filled) table.refill(batch);
    else fill(batch);
    filled = true;
    try {
      await nft.commit(batch);
      return batch.operations;
    } catch (error) {
      if (attempt < ATTEMPTS && hasCode(error, 'ERESTART', 'errno 85')) continue;
      throw error;
    }
  }
}

function use(state: Programmed, ip: string, by: number): void {
  const uses = (state.uses.get(ip) ?? 0) + by;
  if (uses > 0) state.uses.set(ip, uses);
  else state.uses.delete(ip);
}

const isOfFamilies = ({ families }: Kernel, ip: string): boolean =>
  families.includes(ip.includes(':') ? 'ipv6' : 'ipv4');

/** A refusal means that the kernel is not as it was left; what is gone already needs no deletion. */
function reporter(state: Programmed): (owner: FrontendKey | null, error: FairleadError) => void {
  return (owner, error) => {
    if (error.code === 'ENOENT' && owner === null) return;
    state.isStale = true;
    state.failed.set(owner ?? error.object ?? 'ipvs', error);
  };
}

const failures = (state: Programmed) => [...state.failed].map(([key, error]) => ({ key, error }));
