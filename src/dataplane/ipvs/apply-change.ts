import type { NetnsRef } from '../../kernel/netns.ts';
import type { ElementGroup } from '../../nft/spec.ts';
import type { CommitReport } from '../../nft/table.ts';
import type { Change } from '../../service/model.ts';
import { changeAddressSet, HAIRPIN } from '../rules/address-elements.ts';
import { DRAIN_MS } from './drain.ts';
import type { GoneTest } from './drain-polls.ts';
import { makePlan } from './planning.ts';
import {
  drop,
  freeNumber,
  isOfFamilies,
  type Kernel,
  layoutOf,
  numbersOf,
  type Programmed,
  reporter,
  use,
} from './programmed.ts';
import { ADDRESSES, renderFrontend } from './render.ts';
import { Commands, send, serverKey } from './server-table.ts';
import { changeAddresses, isLocal, readAddresses } from './service-interface.ts';

/** From this number of addresses on, one listing is cheaper than single lookups. */
const MAX_LOOKUPS = 50;

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

/** Removes servers whose connections have ended, have drained too long or lead to endpoints that are gone, and their addresses. */
export async function collectDrained(kernel: Kernel, state: Programmed, isGone: GoneTest): Promise<void> {
  const before = kernel.clock.now() - (kernel.options.drainMs ?? DRAIN_MS);
  const isOver = (since: number | null) => since !== null && since <= before;
  const remove = new Commands(kernel.ipvs);
  const held = state.servers.heldAddresses();
  const deleted = state.servers.collect(
    (id) => kernel.ipvs.realServers(id),
    (real) => isGone(real) || isOver(real.drainingSince),
    remove,
  );
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
