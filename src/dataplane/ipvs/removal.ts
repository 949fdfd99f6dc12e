import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS, type Flow } from '../../kernel/conntrack/flow.ts';
import type { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { Tables } from '../../nft/tables.ts';
import type { Frontend, NodeView } from '../../service/model.ts';
import { endDraining, openDrainTables } from './drain.ts';
import { renderDrainTable } from './drain-table.ts';
import { ALIAS, type FrontendPlan } from './frontend-plan.ts';
import { restoreSettings } from './kernel-settings.ts';
import { type Owner, ownServers } from './ownership.ts';
import { changeAddresses, findInterface, readAddresses, removeInterface } from './service-interface.ts';
import { preferSources } from './source-addresses.ts';

const { UDP } = PROTOCOL_NUMBER;

export interface Removal extends Owner {
  readonly ipvs: IpvsConnection;
  readonly tables: Tables;
}

/** Removes all kernel state of the mode. */
export async function removeAll(removal: Removal): Promise<void> {
  const { families, netns, ipvs, tables } = removal;
  const device = findInterface(netns);
  const { ours } = readAddresses(device, netns);
  const { own, shared } = ownServers(ipvs, removal, ours);
  const batch = ipvs.batch();
  for (const { id } of own) batch.deleteServer(id);
  await ipvs.commit(batch);
  // The interface stays until the settings are restored: it has the record of them, for the next process if this one is killed.
  if (device !== null) await changeAddresses(device, [], ours, netns);
  const wasThere = tables.exist;
  await tables.remove();
  const wasDraining = await endDraining(families, netns);
  if (device !== null || wasThere || wasDraining) restoreSettings({ shared }, netns);
  removeInterface(netns);
}

/**
 * Removes the rules when another mode already handles new connections, and keeps the virtual servers with their open
 * connections for `drain`. UDP flows are deleted, so that the other mode handles their next packets. `plans`: the
 * programmed plans, if this process programmed them.
 */
export async function prepareDrain(
  removal: Removal,
  plans: ReadonlyMap<string, FrontendPlan> | null,
  node: NodeView | null,
): Promise<void> {
  const { families, netns, ipvs, tables } = removal;
  const device = findInterface(netns);
  if (device === null) return;
  const { ours } = readAddresses(device, netns);
  if (node) preferSources(device, ours, node, netns);
  using draining = openDrainTables(families, netns);
  for (const table of draining) {
    if (!table.exists()) await table.replace(renderDrainTable(table.family, ours));
  }
  await tables.remove();
  const reals = new Set<string>();
  for (const { id } of ownServers(ipvs, removal, ours).own) {
    // The protocol behind a mark is not known.
    if ('protocol' in id && id.protocol !== UDP) continue;
    for (const { address, port } of ipvs.realServers(id)) reals.add(`${address} ${port}`);
  }
  if (reals.size > 0) await forgetUdp(removal, reals, plans);
}

async function forgetUdp(
  { families, netns }: Removal,
  reals: ReadonlySet<string>,
  plans: ReadonlyMap<string, FrontendPlan> | null,
): Promise<void> {
  const redirected =
    plans && new Set([...plans.values()].filter(isRedirected).map(({ frontend }) => nameOf(frontend)));
  /** IPVS sets no status bit for translated flows: compare the addresses. */
  const isOurs = ({ family, original, reply, status }: Flow): boolean => {
    if (!reals.has(`${reply.source} ${reply.sourcePort}`)) return false;
    if ((status & FLOW_STATUS.destinationNat) === 0) return original.destination !== reply.source;
    // Redirected to the alias address first, or already handled by the other mode.
    return (
      redirected === null ||
      redirected.has(`${original.destination} ${original.destinationPort}`) ||
      redirected.has(`${family} ${original.destinationPort}`)
    );
  };
  using conntrack = new ConntrackConnection(netns);
  for (const family of families) {
    await conntrack.delete(conntrack.list(family, { protocol: UDP }).filter(isOurs));
  }
}

const nameOf = ({ family, address, port }: Frontend): string => `${address ?? family} ${port}`;

function isRedirected({ frontend, servers }: FrontendPlan): boolean {
  return (
    frontend.protocol === 'UDP' &&
    servers.some(({ server: { id } }) => 'address' in id && id.address === ALIAS[id.family])
  );
}
