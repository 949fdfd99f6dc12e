import type { NetnsRef } from '../kernel/netns.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { type Client, hasReason, pathOf } from '../kube/client.ts';
import { type Pod, RESOURCES } from '../kube/types.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { nodeNetns, UPLINK } from '../network/topology.ts';
import { deviceName, drop, is, isNot } from '../nft/rule.ts';
import type { ChainSpec } from '../nft/spec.ts';
import { Tables } from '../nft/tables.ts';
import { FAULT_TABLE, hasFaultTable } from '../observe/planted-faults.ts';
import { endLinkDelay, isLinkDelayed, plantLinkDelay } from './link-delay.ts';
import { podName } from './observed-places.ts';
import { pausePid } from './places.ts';
import type { ClusterState } from './state.ts';

/**
 * Faults that a user plants in a local cluster to see how it reacts. Each is a state of the kernel, of a Node object, or a
 * process, which is also its only record: `down` ends the process, and removes the kernel's with the network namespaces.
 */
export const FAULT_KINDS = ['silent', 'cut', 'slow', 'drain'] as const;
/**
 * `silent`: a pod gets no packets, so that it does not answer. `cut`: a node's uplink carries nothing. `slow`: packets that leave
 * or reach a node through its uplink are delayed. `drain`: a node gets no new pods, and its pods move to others.
 */
export type FaultKind = (typeof FAULT_KINDS)[number];

export interface Fault {
  readonly kind: FaultKind;
  /** "namespace/name" of a pod, or the name of a node. */
  readonly target: string;
}

export interface FaultRequest {
  readonly kind: FaultKind;
  /** A pod: "name", "namespace/name", with or without "pod/". A node: "name", with or without "node/". */
  readonly target: string;
  /** Of `slow`, in milliseconds. */
  readonly delayMs: number;
}

/** A fault that was planted. */
export interface PlantedFault {
  readonly fault: Fault;
  /** The limits of its effect, as text. */
  readonly warnings: readonly string[];
}

/** On a drained node, so that only what `fault` has drained is undone. */
const DRAIN_ANNOTATION = 'fairlead.dev/fault';
const FAMILIES = ['ipv4', 'ipv6'] as const;

export const DEFAULT_DELAY_MS = 200;
export const MAX_DELAY_MS = 60_000;

/** Reads a request for a fault from JSON: {kind, target, delayMs?}. Throws FairleadError. */
export function readFaultRequest(value: unknown): FaultRequest {
  const { kind, target, delayMs = DEFAULT_DELAY_MS } = (value ?? {}) as Record<string, unknown>;
  const known = FAULT_KINDS.find((one) => one === kind);
  if (!known) throw badRequest(`kind must be one of ${FAULT_KINDS.join(', ')}`);
  if (typeof target !== 'string' || target === '')
    throw badRequest('target must be the name of a pod or node');
  if (typeof delayMs !== 'number' || !(delayMs >= 1 && delayMs <= MAX_DELAY_MS))
    throw badRequest(`delayMs must be a number from 1 to ${MAX_DELAY_MS}`);
  return { kind: known, target, delayMs };
}

const badRequest = (message: string) =>
  new FairleadError(message, { op: 'plant a fault', code: 'BadRequest' });

/** Plants a fault. Throws FairleadError if the pod or node does not exist, or the kernel cannot do it. */
export async function plantFault(
  state: ClusterState,
  client: Client,
  { kind, target, delayMs }: FaultRequest,
): Promise<PlantedFault> {
  switch (kind) {
    case 'silent': {
      const pod = await findPod(client, target);
      writeTable(podNetns(state, pod), [
        chain('prerouting', PRIORITY.raw, [isNot('meta.iifname', deviceName('lo')), drop]),
      ]);
      return { fault: { kind, target: podName(pod) }, warnings: [] };
    }
    case 'cut': {
      const node = findNode(state, target);
      writeTable(nodeNetns(state.name, node), [
        chain('prerouting', PRIORITY.raw, [is('meta.iifname', deviceName(UPLINK)), drop]),
        chain('postrouting', PRIORITY.last, [is('meta.oifname', deviceName(UPLINK)), drop]),
      ]);
      return { fault: { kind, target: node }, warnings: [] };
    }
    case 'slow': {
      const node = findNode(state, target);
      await plantLinkDelay(state, node, delayMs);
      return { fault: { kind, target: node }, warnings: [] };
    }
    case 'drain': {
      const node = findNode(state, target);
      await client.patch(RESOURCES.nodes, node, 'merge', {
        metadata: { annotations: { [DRAIN_ANNOTATION]: kind } },
        spec: { unschedulable: true },
      });
      return { fault: { kind, target: node }, warnings: await evictPods(client, node) };
    }
  }
}

/** Returns the faults that are planted now. */
export async function listFaults(state: ClusterState, client: Client): Promise<Fault[]> {
  const { items: nodes } = await client.list(RESOURCES.nodes);
  const drained = new Set(
    nodes
      .filter(({ metadata }) => annotationOf(metadata?.annotations) === 'drain')
      .map(({ metadata }) => metadata?.name),
  );
  const faults = state.nodes.flatMap(({ name }): Fault[] => [
    ...(hasFaultTable(nodeNetns(state.name, name)) ? [{ kind: 'cut' as const, target: name }] : []),
    ...(isLinkDelayed(state, name) ? [{ kind: 'slow' as const, target: name }] : []),
    ...(drained.has(name) ? [{ kind: 'drain' as const, target: name }] : []),
  ]);
  const { items: pods } = await client.list(RESOURCES.pods);
  for (const pod of pods) {
    if (isRunningPod(pod) && isSilent(state, pod)) faults.push({ kind: 'silent', target: podName(pod) });
  }
  return faults;
}

/** Undoes all faults, and returns them. One that cannot be undone does not keep the others; they are all named in the error. */
export async function undoFaults(state: ClusterState, client: Client): Promise<Fault[]> {
  const faults = await listFaults(state, client);
  const failures: string[] = [];
  for (const fault of faults) {
    try {
      await undo(state, client, fault);
    } catch (error) {
      failures.push(`${fault.kind} ${fault.target}: ${messageOf(error)}`);
    }
  }
  if (failures.length === 0) return faults;
  throw new FairleadError(`failed to undo ${failures.join('; ')}`, { op: 'undo faults', code: 'bad-state' });
}

async function undo(state: ClusterState, client: Client, { kind, target }: Fault): Promise<void> {
  switch (kind) {
    case 'silent':
      removeTable(podNetns(state, await findPod(client, target)));
      break;
    case 'cut':
      removeTable(nodeNetns(state.name, target));
      break;
    case 'slow':
      await endLinkDelay(state, target);
      break;
    case 'drain':
      await client.patch(RESOURCES.nodes, target, 'merge', {
        metadata: { annotations: { [DRAIN_ANNOTATION]: null } },
        spec: { unschedulable: null },
      });
  }
}

const annotationOf = (annotations: unknown): string | undefined =>
  (annotations as Record<string, string> | undefined)?.[DRAIN_ANNOTATION];

/** Evicts the pods that a controller creates again elsewhere; returns why others stay. */
async function evictPods(client: Client, node: string): Promise<string[]> {
  const { items } = await client.list(RESOURCES.pods, { fieldSelector: `spec.nodeName=${node}` });
  const warnings: string[] = [];
  for (const pod of items) {
    const { name = '', namespace = '', ownerReferences = [] } = pod.metadata ?? {};
    const owner = ownerReferences.find(({ controller }) => controller === true);
    if (owner?.kind === 'DaemonSet' || !isRunningPod(pod)) continue;
    if (!owner) {
      warnings.push(`pod ${podName(pod)} stays: no controller would create it again`);
      continue;
    }
    try {
      await client.request('POST', pathOf(RESOURCES.pods, namespace, name, 'eviction'), {
        apiVersion: 'policy/v1',
        kind: 'Eviction',
        metadata: { name, namespace },
      });
    } catch (error) {
      if (!hasReason(error, 'NotFound')) warnings.push(`pod ${podName(pod)} stays: ${messageOf(error)}`);
    }
  }
  return warnings;
}

const isRunningPod = ({ spec, status }: Pod): boolean =>
  status?.phase === 'Running' && spec?.nodeName !== undefined;

async function findPod(client: Client, text: string): Promise<Pod> {
  const path = text.replace(/^pod\//, '');
  const wanted = path.includes('/') ? path : `default/${path}`;
  const { items } = await client.list(RESOURCES.pods);
  const pod = items.find((one) => podName(one) === wanted && isRunningPod(one));
  if (!pod || pod.spec?.hostNetwork) {
    throw new FairleadError(
      pod ? `pod ${wanted} has the network of its node` : `no such running pod: ${wanted}`,
      {
        op: 'plant a fault',
        code: 'no-pod',
        hint: pod ? 'choose a pod with its own network, or cut the node' : 'kubectl get pods -A',
      },
    );
  }
  return pod;
}

function findNode({ nodes }: ClusterState, text: string): string {
  const wanted = text.replace(/^node\//, '');
  if (nodes.some(({ name }) => name === wanted)) return wanted;
  throw new FairleadError(`no such node: ${wanted}`, {
    op: 'plant a fault',
    code: 'no-node',
    hint: `use one of ${nodes.map(({ name }) => name).join(', ')}`,
  });
}

const podNetns = (state: ClusterState, { metadata, spec }: Pod): NetnsRef => ({
  pid: pausePid(state, spec?.nodeName ?? '', metadata?.uid ?? ''),
});

const chain = (
  hook: 'prerouting' | 'postrouting',
  priority: number,
  rule: ChainSpec['rules'][number],
): ChainSpec => ({
  name: hook,
  base: { type: 'filter', hook, priority },
  rules: [rule],
});

function withTables<T>(netns: NetnsRef, use: (tables: Tables) => T): T {
  // Not owned: another process undoes the fault.
  const tables = new Tables({ families: FAMILIES, name: FAULT_TABLE, netns, owned: false });
  try {
    return use(tables);
  } finally {
    tables.close();
  }
}

function writeTable(netns: NetnsRef, chains: readonly ChainSpec[]): void {
  withTables(netns, (tables) => {
    for (const table of tables)
      table.replaceSync({ family: table.family, name: FAULT_TABLE, chains, sets: [], groups: new Map() });
  });
}

const removeTable = (netns: NetnsRef): void =>
  withTables(netns, (tables) => {
    for (const table of tables) table.removeSync();
  });

/** Reports whether a planted fault keeps packets from a pod. */
function isSilent(state: ClusterState, pod: Pod): boolean {
  try {
    return hasFaultTable(podNetns(state, pod));
  } catch (error) {
    // The pod has ended since it was listed.
    if (hasCode(error, 'ENOENT', 'ESRCH')) return false;
    throw error;
  }
}
