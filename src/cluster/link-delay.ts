import { readFileSync } from 'node:fs';
import { openDelayQueue } from '../kernel/delay-queue.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import type { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { isRunning, type ProcessIdentity } from '../kernel/process-identity.ts';
import { type Clock, pause, systemClock } from '../lib/clock.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { nodeNetns } from '../network/topology.ts';
import { deviceName, is, queue } from '../nft/rule.ts';
import type { ChainSpec } from '../nft/spec.ts';
import { Tables } from '../nft/tables.ts';
import { endProcesses, findProcesses, logTail, startLinkDelay } from './processes.ts';
import type { ClusterState } from './state.ts';

/** Its rules hand packets to the queue of a process, and accept them if it has ended: then they delay nothing. */
const TABLE = 'fairlead-delay';
const FAMILIES = ['ipv4', 'ipv6'] as const;
/** Before connection tracking and all other rules, and after them. */
const START_MS = 20_000;
const STEP_MS = 20;
const END_MS = 2000;

export interface LinkDelayOptions {
  readonly netns: NetnsRef | undefined;
  readonly device: string;
  readonly delayMs: number;
  readonly clock: Clock;
}

/** Delays all IP packets that leave or arrive through a device, as long as this process runs. */
export function delayLink({ netns, device, delayMs, clock }: LinkDelayOptions): { close(): void } {
  const tables = openTables(netns);
  try {
    const form = queueFormOf(tables.connection);
    const packets = openDelayQueue({ netns, delayMs, clock });
    const statement = queue(packets.number, form);
    const chains: ChainSpec[] = [
      {
        name: 'arriving',
        base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.raw },
        rules: [[is('meta.iifname', deviceName(device)), statement]],
      },
      {
        name: 'leaving',
        base: { type: 'filter', hook: 'postrouting', priority: PRIORITY.last },
        rules: [[is('meta.oifname', deviceName(device)), statement]],
      },
    ];
    for (const table of tables)
      table.replaceSync({ family: table.family, name: TABLE, chains, sets: [], groups: new Map() });
    return {
      close() {
        // First: the kernel drops queued packets of a removed chain. Later packets pass the rules without a queue.
        packets.close();
        for (const table of tables) table.removeSync();
        tables.close();
      },
    };
  } catch (error) {
    tables.close();
    throw error;
  }
}

/** Starts the process that delays a node's uplink, and waits until it does. Throws FairleadError. */
export async function plantLinkDelay(state: ClusterState, node: string, delayMs: number): Promise<void> {
  const netns = nodeNetns(state.name, node);
  await endLinkDelay(state, node);
  withTables(netns, ({ connection }) => queueFormOf(connection));
  const { identity } = startLinkDelay(state, node, delayMs);
  for (let waited = 0; waited < START_MS && isRunning(identity); waited += STEP_MS) {
    if (withTables(netns, (tables) => tables.exist)) return;
    await pause(systemClock, STEP_MS);
  }
  await endLinkDelay(state, node);
  throw new FairleadError(
    `the process that delays packets did not start: ${logTail(state, `link-delay-${node}`)}`,
    {
      op: 'delay packets',
      code: 'bad-state',
    },
  );
}

/** Reports whether a process delays the packets of a node's uplink. */
export function isLinkDelayed(state: ClusterState, node: string): boolean {
  const hasRules = withTables(nodeNetns(state.name, node), (tables) => tables.exist);
  return hasRules && processesOf(state, node).length > 0;
}

/** Ends the delay of a node's uplink, and removes what a killed process has left. */
export async function endLinkDelay(state: ClusterState, node: string): Promise<void> {
  await endProcesses(processesOf(state, node), END_MS);
  withTables(nodeNetns(state.name, node), (tables) => {
    for (const table of tables) table.removeSync();
  });
}

function processesOf(state: ClusterState, node: string): ProcessIdentity[] {
  return findProcesses(state.name, []).filter(({ pid }) => {
    try {
      const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return args.includes('link-delay') && args[args.indexOf('--node') + 1] === node;
    } catch (error) {
      if (hasCode(error, 'ENOENT', 'ESRCH')) return false;
      throw error;
    }
  });
}

function queueFormOf(connection: NftConnection) {
  const form = connection.queueForm(NFPROTO.ipv4);
  if (form !== null) return form;
  throw new FairleadError('the kernel cannot delay packets: nf_tables cannot queue them', {
    op: 'delay packets',
    code: 'missing-kernel-feature',
    hint: 'modprobe nft_queue, or use a kernel with CONFIG_NFT_QUEUE',
  });
}

// Not owned: another process removes what a killed one has left.
const openTables = (netns: NetnsRef | undefined): Tables =>
  new Tables({ families: FAMILIES, name: TABLE, netns, owned: false });

function withTables<T>(netns: NetnsRef, use: (tables: Tables) => T): T {
  const tables = openTables(netns);
  try {
    return use(tables);
  } finally {
    tables.close();
  }
}
