import type { ReadGateway } from '../egress/gateway-reader.ts';
import type { EgressView } from '../egress/model.ts';
import {
  EGRESS_GATEWAYS,
  type EgressGatewayCondition,
  type EgressGatewayObject,
  type EgressGatewayStatus,
} from '../kube/egress-gateway.ts';
import type { EventRecorder } from '../kube/events.ts';
import { timestamp } from '../kube/timestamp.ts';
import type { Pod } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { AgentContext } from './agent-context.ts';
import { portsInUse } from './egress-flows.ts';
import type { EgressState } from './egress-objects.ts';
import type { EgressPart } from './egress-part.ts';

/** How often ports are counted, and the status is written again if an earlier attempt failed. */
const READ_MS = 10_000;
/** Changes of a moment are written together. */
const DELAY_MS = 200;
/** The source ports that the kernel gives to connections to one destination: 1024 to 65535. */
const PORTS = 64_512;
/** From this share on, an event says that the ports run out. */
const FEW_LEFT = 0.9;

/** Records at the gateways with an address that this node has it now. */
export function reportEgressStarted(
  egress: EgressPart,
  events: EventRecorder,
  node: string,
  { address, before }: { readonly address: string; readonly before: string },
): void {
  for (const { gateway, object } of egress.state()?.gateways ?? []) {
    if (!gateway.addresses.includes(address)) continue;
    const from = before === '' ? '' : `; ${before} had it before`;
    events.event(object, 'Normal', 'AddressHeld', `${node} translates to ${address}${from}`, EGRESS_GATEWAYS);
  }
}

/**
 * Writes the status of the gateways. One node writes each: that which has its first address that any node has; if none has one,
 * the first of the nodes that may. Each node writes the ports in use of the addresses that it has.
 */
export function keepEgressStatus(context: AgentContext, egress: EgressPart, events: EventRecorder): void {
  const { client, clock, configuration, signal } = context;
  const logger = context.logger.child({ part: 'egress' });
  const node = configuration.nodeName;
  /** By gateway: the status that was written last. */
  const written = new Map<string, string>();
  /** By address: since when the node has it. */
  const since = new Map<string, { readonly node: string; readonly at: string }>();
  const warned = new Set<string>();
  let cancel = () => {};
  let isRunning = false;

  const patch = async (name: string, status: object) => {
    await client.patch(EGRESS_GATEWAYS, name, 'merge', { status }, { subresource: 'status', signal });
  };
  const write = async () => {
    const state = egress.state();
    if (!state || isRunning || signal.aborted) return;
    isRunning = true;
    try {
      const view = egress.view();
      for (const read of state.gateways) {
        if (writerOf(state, view, read) !== node) continue;
        const status = statusOf(state, view, read, egress.pods(), { since, now: clock.now() });
        const text = JSON.stringify(comparable(status));
        const { name } = read.gateway;
        if (written.get(name) === text && JSON.stringify(comparable(read.object.status ?? {})) === text)
          continue;
        await patch(name, status);
        written.set(name, text);
        warn(read, status, events, warned);
      }
    } catch (error) {
      logger.debug({ err: error }, `failed to write the status of egress gateways: ${messageOf(error)}`);
    } finally {
      isRunning = false;
    }
  };
  const count = async () => {
    const state = egress.state();
    const { holders } = egress.view();
    const own = [...holders].filter(([, holder]) => holder === node).map(([address]) => address);
    if (!state || own.length === 0) return;
    const ports = portsInUse(own);
    for (const { gateway, object } of state.gateways) {
      const used = Object.fromEntries([...ports].filter(([address]) => gateway.addresses.includes(address)));
      for (const [address, most] of Object.entries(used))
        if (most >= PORTS * FEW_LEFT)
          events.event(
            object,
            'Warning',
            'PortsExhausted',
            `connections from ${address} to one destination use ${most} of ${PORTS} ports: add addresses`,
            EGRESS_GATEWAYS,
          );
      const known = object.status?.portsInUse ?? {};
      if (Object.entries(used).some(([address, most]) => known[address] !== most))
        await patch(gateway.name, { portsInUse: used });
    }
  };
  const soon = () => {
    cancel();
    cancel = clock.after(DELAY_MS, () => void write().then(later));
  };
  const later = () => {
    cancel();
    if (signal.aborted) return;
    cancel = clock.after(READ_MS, () => {
      count()
        .catch((error: unknown) =>
          logger.debug({ err: error }, `failed to count the ports of egress gateways: ${messageOf(error)}`),
        )
        .then(write)
        .then(later);
    });
  };
  egress.onChange(soon);
  soon();
  context.onClose(() => cancel());
}

function writerOf(state: EgressState, { holders }: EgressView, { gateway }: ReadGateway): string | null {
  const holder = gateway.addresses.map((one) => holders.get(one)).find((one) => one !== undefined);
  if (holder !== undefined) return holder;
  const able = new Set(gateway.addresses.flatMap((one) => [...(state.wanted.get(one)?.nodes ?? [])]));
  // Of a gateway that is refused, any node.
  return [...(able.size > 0 ? able : state.nodes)].sort()[0] ?? null;
}

/** Leaves out what other nodes write, and times. */
const comparable = ({ portsInUse: _, conditions = [], ...rest }: EgressGatewayStatus) => ({
  nodes: rest.nodes,
  pods: rest.pods,
  addresses: (rest.addresses ?? []).map(({ address, node = '' }) => ({ address, node })),
  conditions: conditions.map(({ type, status, reason, message }) => ({ type, status, reason, message })),
});

interface Times {
  readonly since: Map<string, { readonly node: string; readonly at: string }>;
  readonly now: number;
}

/** Computes a gateway's status, but for the ports in use. */
export function statusOf(
  state: EgressState,
  { holders }: EgressView,
  { gateway, object, problem }: ReadGateway & { readonly object: EgressGatewayObject },
  pods: readonly Pod[],
  { since, now }: Times,
): EgressGatewayStatus {
  const at = timestamp(now);
  const addresses = gateway.addresses.map((address) => {
    const node = holders.get(address);
    if (node === undefined) return { address };
    const before =
      since.get(address) ??
      (object.status?.addresses ?? [])
        .filter((one) => one.address === address && one.node !== undefined)
        .map((one) => ({ node: one.node ?? '', at: one.since ?? at }))[0];
    const known = before?.node === node ? before : { node, at };
    since.set(address, known);
    return { address, node, since: known.at };
  });
  const own = state.selecting.find(({ name }) => name === gateway.name);
  const selected = pods.filter((pod) => state.selects(gateway, pod));
  const onNodes = selected.filter((pod) => pod.spec?.hostNetwork === true).map(keyOf);
  const missing = addresses.filter(({ node }) => node === undefined).map(({ address }) => address);
  const nodes = [...new Set(addresses.flatMap(({ node }) => node ?? []))].join(',');
  const overlapping = overlaps(state, gateway.name);
  const set = (type: string, isTrue: boolean, reason: string, message: string): EgressGatewayCondition => {
    const status = isTrue ? 'True' : 'False';
    const former = object.status?.conditions?.find((one) => one.type === type);
    const generation = object.metadata?.generation;
    return {
      ...{ type, status, reason, message },
      lastTransitionTime: former?.status === status ? former.lastTransitionTime : at,
      ...(generation === undefined ? {} : { observedGeneration: generation }),
    };
  };
  const isReady = problem === null && missing.length === 0;
  const conditions = [
    problem === null
      ? set('Accepted', true, 'Accepted', 'the gateway is in force')
      : set('Accepted', false, 'Invalid', `${problem}; the pods that it selects reach no host outside`),
    isReady
      ? set(
          'Ready',
          true,
          'AddressesHeld',
          addresses.map(({ address, node }) => `${address} by ${node}`).join('; '),
        )
      : set(
          'Ready',
          false,
          problem === null ? 'NoNode' : 'Invalid',
          problem === null
            ? `no node has ${missing.join(', ')}: connections from it wait; ${whyNone(state, missing)}`
            : 'the gateway is not accepted',
        ),
    overlapping.length > 0
      ? set('Overlapping', true, 'OlderGateway', overlapping.join('; '))
      : set('Overlapping', false, 'NoOverlap', 'no older gateway selects the same pods'),
    onNodes.length > 0
      ? set(
          'HostNetworkPods',
          true,
          'NotSelected',
          `${onNodes.length} pods in the network of their node are not selected, such as ${onNodes[0]}`,
        )
      : set('HostNetworkPods', false, 'None', 'the selectors match no pod in the network of its node'),
  ];
  return {
    ...(object.metadata?.generation === undefined ? {} : { observedGeneration: object.metadata.generation }),
    nodes,
    pods: own === undefined ? 0 : selected.length - onNodes.length,
    addresses,
    conditions,
  };
}

function whyNone(state: EgressState, addresses: readonly string[]): string {
  const able = addresses.flatMap((one) => [...(state.wanted.get(one)?.nodes ?? [])]);
  return able.length === 0
    ? 'no ready node is selected by spec.nodeSelector'
    : 'a new address is taken in some seconds, by a node whose agent has loadBalancer in its configuration';
}

/** Describes the older gateways that decide about packets of the same pods, if their destinations overlap. */
function overlaps({ selecting }: EgressState, name: string): string[] {
  const at = selecting.findIndex((one) => one.name === name);
  const own = selecting[at];
  if (!own) return [];
  return selecting.slice(0, at).flatMap((older) => {
    const both = [...own.sources.keys()].filter((source) => older.sources.has(source));
    return both.length === 0
      ? []
      : [
          `EgressGateway ${older.name} is older and selects ${both.length} addresses of the same pods: it decides where the destinations overlap`,
        ];
  });
}

/** Records what a user has to know, once for each new text. */
function warn(
  { object, gateway }: ReadGateway & { readonly object: EgressGatewayObject },
  { conditions = [] }: EgressGatewayStatus,
  events: EventRecorder,
  warned: Set<string>,
): void {
  for (const { type, status, reason, message } of conditions) {
    const isBad = type === 'Accepted' || type === 'Ready' ? status === 'False' : status === 'True';
    const text = `${gateway.name} ${type} ${message}`;
    if (!isBad || warned.has(text)) continue;
    if (warned.size > 10_000) warned.clear();
    warned.add(text);
    events.event(
      object,
      'Warning',
      type === 'HostNetworkPods' ? 'HostNetworkPodsNotSelected' : `${type}${reason}`,
      message,
      EGRESS_GATEWAYS,
    );
  }
}
