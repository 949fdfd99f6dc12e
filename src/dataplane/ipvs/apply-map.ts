import type { VirtualServer } from '../../kernel/ipvs/codec.ts';
import type { CommitReport } from '../../nft/table.ts';
import type { Frontend, ServiceMap } from '../../service/model.ts';
import { endDraining } from './drain.ts';
import { ALIAS, type PlannedServer } from './frontend-plan.ts';
import { applySettings } from './kernel-settings.ts';
import { createLayout } from './layout.ts';
import { markScheme, NumberTable, PORTS } from './marks.ts';
import { ownership } from './ownership.ts';
import { makePlan } from './planning.ts';
import {
  drop,
  isKnown,
  isOfFamilies,
  type Kernel,
  layoutOf,
  numbersOf,
  type Programmed,
  reporter,
  use,
} from './programmed.ts';
import { renderTable } from './render.ts';
import { restoreMarks } from './restored-marks.ts';
import { Commands, ServerTable, send, serverKey, serverOrder } from './server-table.ts';
import { changeAddresses, ensureInterface, readAddresses } from './service-interface.ts';
import { restoreSources } from './source-addresses.ts';

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
