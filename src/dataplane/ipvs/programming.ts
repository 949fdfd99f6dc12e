import { describeServer, type ServerId, type VirtualServer } from '../../kernel/ipvs/codec.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { addressBytes, cidrContains, FAMILY_NAMES, type IPFamily } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import type { ElementGroup } from '../../nft/spec.ts';
import type { CommitReport } from '../../nft/table.ts';
import type { Change, Frontend, FrontendKey, ServiceMap } from '../../service/model.ts';
import { poolsOf } from '../../service/pools.ts';
import { changeAddressSet, HAIRPIN } from '../rules/address-elements.ts';
import { endDraining } from './drain.ts';
import { ALIAS, type FrontendPlan, type PlannedServer, planFrontend } from './frontend-plan.ts';
import { applySettings } from './kernel-settings.ts';
import { createLayout, type Layout } from './layout.ts';
import { markScheme, NumberTable, PORTS } from './marks.ts';
import { ownership } from './ownership.ts';
import type { Kernel, Programmed } from './programmed.ts';
import { ADDRESSES, renderFrontend, renderTable } from './render.ts';
import { restoreMarks } from './restored-marks.ts';
import { Commands, ServerTable, send, serverKey, serverOrder } from './server-table.ts';
import { changeAddresses, ensureInterface, isLocal, readAddresses } from './service-interface.ts';
import { restoreSources } from './source-addresses.ts';

/** From this number of addresses on, one listing is cheaper than single lookups. */
const MAX_LOOKUPS = 50;

/** Reconciles the kernel with a map. `before`: the state that this process has programmed. */
export async function applyMap(
  kernel: Kernel,
  map: ServiceMap,
  before: Programmed | null,
): Promise<{ programmed: Programmed; report: CommitReport }> {
  const { families, netns, ipvs, clock, options } = kernel;
  const { node } = map;
  const started = performance.now();
  const fault = await kernel.probe.check(options.scheduler ?? node.ipvsScheduler);
  if (fault) throw fault;
  // Servers that another process was draining are adopted.
  const wasDraining = await endDraining(families, netns);
  if (options.timeouts) ipvs.setTimeouts(options.timeouts);
  const device = ensureInterface(netns);
  applySettings(node.localhostNodePorts && families.includes('ipv4'), netns);
  const { ours, others } = readAddresses(device, netns);
  if (wasDraining) restoreSources(device, ours, netns);
  const scheme = markScheme(node.masqueradeBit);
  const isOurs = ownership({ families, scheme, foreign: new Set() }, ours);
  const standing = ipvs.servers();
  // After the first sync, this process knows its own servers.
  const isForeign = ({ id }: VirtualServer) => !isOurs(id) || (before !== null && !isKnown(before, id));
  const state: Programmed = {
    node,
    device,
    servers: new ServerTable(),
    scheme,
    marks: new NumberTable(scheme),
    aliases: new NumberTable(PORTS),
    layouts: new Map(families.map((family) => [family, createLayout(family, node, scheme)])),
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
  restoreMarks(kernel, state, map);
  const read = performance.now();

  for (const family of families) use(state, ALIAS[family], 1);
  const frontends = [...map.frontends.values()].filter(({ family }) => families.includes(family));
  for (const { address } of frontends) if (address !== null) use(state, address, 1);
  for (const ip of map.clusterIPs.keys()) if (isOfFamilies(kernel, ip)) use(state, ip, 1);
  for (const ip of state.uses.keys()) if (!others.has(ip)) state.bound.add(ip);

  const early = new Commands(ipvs);
  const late = new Commands(ipvs);
  const remove = new Commands(ipvs);
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
  const written = await kernel.tables.replace((family) =>
    renderTable(layoutOf(state, family), node, {
      plans: state.plans,
      bound: state.bound,
      hairpinAddresses: map.hairpinAddresses,
    }),
  );
  const missing = [...state.bound].filter((ip) => !ours.has(ip));
  await changeAddresses(device, missing, [], netns);
  await send(ipvs, late, reporter(state));
  await send(ipvs, remove, reporter(state));
  const extra = [...ours].filter((ip) => !state.bound.has(ip) && isOfFamilies(kernel, ip));
  await changeAddresses(device, [], extra, netns);
  const commands = early.batch.length + late.batch.length + remove.batch.length;
  return {
    programmed: state,
    report: {
      operations: commands + written.operations + missing.length + extra.length,
      encodeMs: encoded - read,
      kernelMs: read - started + performance.now() - encoded,
    },
  };
}

/** Applies a change to the programmed state. */
export async function applyChange(kernel: Kernel, state: Programmed, change: Change): Promise<CommitReport> {
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

  // Addresses in use are already on the interface.
  const appeared = [...touched].filter((ip) => state.uses.has(ip) && !state.bound.has(ip));
  noteOthers(state, appeared, netns);
  const added = appeared.filter((ip) => !state.others.has(ip));
  for (const ip of added) state.bound.add(ip);

  const early = new Commands(ipvs);
  const late = new Commands(ipvs);
  const remove = new Commands(ipvs);
  const groups = new Map(kernel.families.map((family) => [family, new Map<string, ElementGroup | null>()]));
  for (const { key, after, before } of changes) {
    const family = (after ?? before)?.family ?? 'ipv4';
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
    for (const { server, holder } of old?.servers ?? []) {
      if (kept.has(serverKey(server.id))) continue;
      if (holder !== null) numbersOf(state, server.id)?.table.forget(holder);
      drop(state, server.id, old?.frontend.protocol !== 'UDP', now, remove);
    }
    if (plan) state.plans.set(key, plan);
    else state.plans.delete(key);
    groups.get(family)?.set(key, plan && renderFrontend(plan, layoutOf(state, family)));
  }
  for (const [family, ofFamily] of groups) {
    changeAddressSet(ofFamily, ADDRESSES, family, { added, removed: [] });
    changeAddressSet(ofFamily, HAIRPIN, family, change.hairpinAddresses);
  }
  const encoded = performance.now();
  await send(ipvs, early, reporter(state));
  let operations = early.batch.length + late.batch.length + remove.batch.length + added.length;
  operations += (await kernel.tables.change(groups)).operations;
  if (added.length > 0) await changeAddresses(state.device, added, [], netns);
  await send(ipvs, late, reporter(state));
  await send(ipvs, remove, reporter(state));
  if (touched.size > 0) operations += await releaseAddresses(kernel, state, touched);
  return {
    operations,
    encodeMs: encoded - started,
    kernelMs: performance.now() - encoded,
  };
}

/** Removes servers whose connections have ended, or for which `isOver` is true, and addresses that only they needed. */
export async function collectDrained(
  kernel: Kernel,
  state: Programmed,
  isOver: (real: { address: string; port: number; drainingSince: number | null }) => boolean,
): Promise<void> {
  const remove = new Commands(kernel.ipvs);
  const held = state.servers.heldAddresses();
  const deleted = state.servers.collect((id) => kernel.ipvs.realServers(id), isOver, remove);
  await send(kernel.ipvs, remove, reporter(state));
  for (const id of deleted) freeNumber(state, id);
  if (held.size > 0) await releaseAddresses(kernel, state, held);
}

/** Records which addresses that are not on the mode's interface belong to other devices of the node. */
function noteOthers(state: Programmed, addresses: readonly string[], netns: NetnsRef | undefined): void {
  if (addresses.length > MAX_LOOKUPS) {
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

/** Removes unused addresses from the mode's interface. */
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
  const groups = new Map(
    kernel.families.map((family) => {
      const ofFamily = new Map<string, ElementGroup | null>();
      changeAddressSet(ofFamily, ADDRESSES, family, { added: [], removed: gone });
      return [family, ofFamily];
    }),
  );
  return gone.length + (await kernel.tables.change(groups)).operations;
}

/**
 * Removes a server without a frontend. Its connections may drain if its address can stay on this node: if another port
 * of it is in use, or if it is a cluster IP. A load balancer's address may already be in use on another host.
 */
function drop(state: Programmed, id: ServerId, drains: boolean, now: number, remove: Commands): void {
  const stays =
    'mark' in id ||
    (!state.others.has(id.address) &&
      (state.uses.has(id.address) || state.node.serviceCidrs.some((cidr) => cidrContains(cidr, id.address))));
  const gone = state.servers.drop(id, drains && stays, now, remove);
  if (gone) freeNumber(state, id);
}

/** Returns the number of a server without a frontend address. */
function numbersOf(state: Programmed, id: ServerId): { table: NumberTable; number: number } | null {
  if ('mark' in id) return { table: state.marks, number: id.mark };
  return id.address === ALIAS[id.family] ? { table: state.aliases, number: id.port } : null;
}

function freeNumber(state: Programmed, id: ServerId): void {
  const numbers = numbersOf(state, id);
  numbers?.table.free(numbers.number);
}

/** Marks always belong to this mode; on addresses of its interface other programs may have servers too. */
function isKnown({ servers }: Programmed, id: ServerId): boolean {
  return 'mark' in id || servers.has(id);
}

/** Plans a frontend; returns null, and records the failure, if it cannot be programmed. */
async function makePlan(kernel: Kernel, state: Programmed, frontend: Frontend): Promise<FrontendPlan | null> {
  const standard = kernel.options.scheduler ?? state.node.ipvsScheduler;
  let scheduler = frontend.options.ipvsScheduler ?? standard;
  if (scheduler !== standard) {
    const error = await kernel.probe.check(scheduler);
    if (error) {
      // Served anyway: another scheduler is better than no Service. A retry would not help.
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
  for (const { endpoints } of poolsOf(frontend)) {
    bad ??= endpoints.find(({ ip }) => addressBytes(ip)?.length !== length)?.ip;
  }
  if (bad !== undefined) {
    state.failed.set(
      frontend.key,
      new FairleadError(`${JSON.stringify(bad)} is not an ${FAMILY_NAMES[family]} address`, {
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
      // Listed in full syncs; new addresses are looked up.
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
  return new FairleadError(`another program already has the ${object}`, {
    op: 'program IPVS',
    code: 'EEXIST',
    object,
    hint: 'remove it, or configure that program not to use this address',
  });
}

function layoutOf(state: Programmed, family: IPFamily): Layout {
  const layout = state.layouts.get(family);
  // Invariant: callers pass only families of frontends that `state` was created with.
  if (!layout) throw new Error(`IPVS state has no layout for ${family}`);
  return layout;
}

function use(state: Programmed, ip: string, by: number): void {
  const uses = (state.uses.get(ip) ?? 0) + by;
  if (uses > 0) state.uses.set(ip, uses);
  else state.uses.delete(ip);
}

const isOfFamilies = ({ families }: Kernel, ip: string): boolean =>
  families.includes(ip.includes(':') ? 'ipv6' : 'ipv4');

/** An error means that the kernel's state has changed; an object that is already gone needs no deletion. */
function reporter(state: Programmed): (owner: FrontendKey | null, error: FairleadError) => void {
  return (owner, error) => {
    if (error.code === 'ENOENT' && owner === null) return;
    state.isStale = true;
    state.failed.set(owner ?? error.object ?? 'ipvs', error);
  };
}
