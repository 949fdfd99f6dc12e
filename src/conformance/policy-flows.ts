import { type Client, hasReason } from '../kube/client.ts';
import { RESOURCES, type Resource } from '../kube/types.ts';
import { hostPort, type IPFamily } from '../lib/address.ts';
import { type Clock, pause } from '../lib/clock.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { PolicyPacket, PolicyVerdict } from '../policy/allows.ts';
import { clusterPolicyRows } from '../policy/cluster-policy-rows.ts';
import { inServedVersion } from '../policy/follow-cluster-policies.ts';
import { policyText } from '../policy/model.ts';
import { type PolicyRow, type RowPacket, type RowScene, rowPacket } from '../policy/policy-row.ts';
import { policyRows } from '../policy/policy-rows.ts';
import type { Place } from './fixture.ts';
import type { PolicyScene } from './policy-scene.ts';
import type { Outcome, Prober } from './probe.ts';
import type { FlowResult, Oracle } from './run.ts';

/** The reports of the nodes about packets and policies. */
export interface PolicyOracle extends Pick<Oracle, 'mode' | 'explain'> {
  /** Resolves after the node has programmed the policies that it knows. */
  decidePolicies(node: string, packets: readonly PolicyPacket[]): Promise<readonly PolicyVerdict[]>;
}

/** One packet of a row, in one family, to an address of the receiver or to the Service in front of it. */
export interface PolicyFlow<P extends Place> {
  readonly text: string;
  readonly from: P;
  readonly to: P;
  /** The name with which the receiver answers. */
  readonly server: string;
  readonly family: IPFamily;
  readonly packet: RowPacket;
  /** Where the client sends it. */
  readonly address: string;
  readonly isAllowed: boolean;
}

export interface PolicyFlows<P extends Place> {
  readonly row: PolicyRow;
  readonly flows: readonly PolicyFlow<P>[];
}

/** How long an answer may take on a busy machine before it counts as silence. */
const PATIENCE_MS = 20_000;
/** Less than the second after which TCP repeats a lost packet. */
const SILENCE_MS = 700;
/** How long nodes may take to learn of a row's policies. */
const SETTLE_MS = 30_000;

const allRows = (scene: RowScene): PolicyRow[] => [...policyRows(scene), ...clusterPolicyRows(scene)];

type Kind = 'direct' | 'through a Service';
const KINDS: readonly Kind[] = ['direct', 'through a Service'];

const textOf = (row: PolicyRow, text: string, family: IPFamily, kind: Kind): string =>
  `policy: ${row.name}: ${text}, ${family}, ${kind}`;

const packetsOf = ({ allowed = [], denied = [] }: PolicyRow) => [
  ...allowed.map((text) => ({ text, isAllowed: true })),
  ...denied.map((text) => ({ text, isAllowed: false })),
];

/** Returns the texts of all flows that a cluster may have. */
export function policyTexts(families: readonly IPFamily[]): string[] {
  const nowhere: RowScene = {
    node: (name) => name,
    namespace: (name) => name,
    podNetworks: [],
    farNetworks: [],
    outside: [],
  };
  return allRows(nowhere).flatMap((row) =>
    packetsOf(row).flatMap(({ text }) =>
      families.flatMap((family) => KINDS.map((kind) => textOf(row, text, family, kind))),
    ),
  );
}

/** Returns the packets of the rows as flows: in each family, and from pods to other pods also through Services. */
export function policyFlowsOf<P extends Place>(
  { places, services, rows, serverName }: PolicyScene<P>,
  families: readonly IPFamily[],
): PolicyFlows<P>[] {
  return allRows(rows).map((row) => {
    const flows = packetsOf(row).flatMap(({ text, isAllowed }) => {
      const packet = rowPacket(text);
      const [from, to] = [places.get(packet.from), places.get(packet.to)];
      // A cluster with one node has no node-2, and a real one no host outside.
      if (!from || !to) return [];
      return families.flatMap((family) =>
        KINDS.flatMap((kind): PolicyFlow<P>[] => {
          const isToService = kind !== 'direct';
          if (isToService && (from.kind !== 'pod' || from === to)) return [];
          const address = isToService ? services.get(packet.to)?.[family] : to.addresses[family];
          if (address === undefined) return [];
          const flow = { from, to, server: serverName(to), family, packet, address, isAllowed };
          return [{ text: textOf(row, text, family, kind), ...flow }];
        }),
      );
    });
    return { row, flows };
  });
}

/** Creates each row's policies, waits until the nodes have them, sends the packets, and removes the policies. */
export async function runPolicyFlows<P extends Place>(
  {
    client,
    oracle,
    probe,
    clock,
    nodes,
  }: {
    readonly client: Client;
    readonly oracle: PolicyOracle;
    readonly probe: Prober<P>;
    readonly clock: Clock;
    /** The names of all nodes. */
    readonly nodes: readonly string[];
  },
  list: readonly PolicyFlows<P>[],
  onResult: (result: FlowResult) => void,
): Promise<FlowResult[]> {
  const results: FlowResult[] = [];
  for (const { row, flows } of list) {
    try {
      for (const policy of row.policies) await client.create(RESOURCES.networkPolicies, policy);
      for (const { kind, object } of row.clusterPolicies ?? [])
        await inServedVersion(kind, (resource) =>
          client.create(resource, { ...object, apiVersion: `${resource.group}/${resource.version}` }),
        );
      const decided = await settle(oracle, clock, nodes, flows);
      const ofRow = await Promise.all(
        flows.map((flow, index) => runFlow({ oracle, probe }, flow, decided.get(flow.to.node)?.[index])),
      );
      for (const result of ofRow) onResult(result);
      results.push(...ofRow);
    } finally {
      for (const { metadata } of row.policies)
        await remove(client, RESOURCES.networkPolicies, metadata?.name, metadata?.namespace);
      for (const { kind, object } of row.clusterPolicies ?? [])
        await ignoreMissing(
          inServedVersion(kind, (resource) => client.delete(resource, object.metadata?.name ?? '')),
        );
    }
  }
  return results;
}

async function remove(client: Client, resource: Resource, name = '', namespace?: string): Promise<void> {
  await ignoreMissing(client.delete(resource, name, namespace === undefined ? {} : { namespace }));
}

async function ignoreMissing(deletion: Promise<unknown>): Promise<void> {
  try {
    await deletion;
  } catch (error) {
    // A policy after the one whose creation failed.
    if (!hasReason(error, 'NotFound')) throw error;
  }
}

/** Waits until the decisions of all nodes agree with the rows; a lasting difference appears in the flows. */
async function settle<P extends Place>(
  oracle: PolicyOracle,
  clock: Clock,
  nodes: readonly string[],
  flows: readonly PolicyFlow<P>[],
): Promise<ReadonlyMap<string, readonly PolicyVerdict[]>> {
  const packets = flows.map(packetOf);
  for (const until = clock.now() + SETTLE_MS; ; ) {
    const verdicts = new Map(
      await Promise.all(
        nodes.map(async (node) => [node, await oracle.decidePolicies(node, packets)] as const),
      ),
    );
    const isSettled = [...verdicts.values()].every((ofNode) =>
      flows.every(({ isAllowed }, index) => ofNode[index]?.isAllowed === isAllowed),
    );
    if (isSettled || clock.now() > until) return verdicts;
    await pause(clock, 50);
  }
}

function packetOf<P extends Place>({ from, to, family, packet }: PolicyFlow<P>): PolicyPacket {
  return {
    source: from.addresses[family] ?? '',
    destination: to.addresses[family] ?? '',
    protocol: packet.protocol,
    port: packet.port,
    ...(from.kind === 'node' ? { fromNode: from.node } : {}),
  };
}

async function runFlow<P extends Place>(
  { oracle, probe }: { readonly oracle: PolicyOracle; readonly probe: Prober<P> },
  flow: PolicyFlow<P>,
  verdict: PolicyVerdict | undefined,
): Promise<FlowResult> {
  const { from, packet, family, address, isAllowed } = flow;
  const mode = oracle.mode(from.node);
  const { protocol, port } = packet;
  // Before the packet, so that the outcome cannot influence it.
  const explanation = await oracle.explain(from.name, `${hostPort({ ip: address, port })}/${protocol}`);
  const outcome = await probe({
    from,
    protocol: protocol === 'UDP' ? 'UDP' : 'TCP',
    family,
    address,
    port,
    patience: isAllowed ? PATIENCE_MS : SILENCE_MS,
  });
  const expected = isAllowed ? 'delivered' : 'dropped';
  const seen = seenText(flow, outcome);
  const explained = explainedText(explanation, verdict);
  const decided = verdict ? (verdict.isAllowed ? 'delivered' : 'dropped') : 'nothing';
  return {
    flow: flow.text,
    mode,
    expected,
    seen,
    decided,
    explained,
    sourceProblem: null,
    ok: seen === expected && decided === expected && explained === expected,
    difference: null,
  };
}

function seenText({ server }: { readonly server: string }, outcome: Outcome): string {
  switch (outcome.kind) {
    case 'answer':
      return outcome.server === server ? 'delivered' : `answered by ${outcome.server}`;
    case 'refused':
      return 'rejected';
    case 'silence':
      return 'dropped';
    case 'failed':
      return `failed: ${outcome.error}`;
  }
}

/** An explanation must also name the policy that decided. */
function explainedText({ verdict, steps }: Explanation, decided: PolicyVerdict | undefined): string {
  const [end] = decided ? [decided.egress, decided.ingress].filter((one) => !one.isAllowed) : [];
  const reason = end?.reason;
  const names =
    reason?.kind === 'no-rule' ? reason.policies : reason?.kind === 'rule' ? [policyText(reason.policy)] : [];
  const isNamed = names.every((name) =>
    steps.some(({ subject, text }) => subject === 'policy' && text.includes(name)),
  );
  return isNamed ? verdict : `${verdict}, without the policies ${names.join(', ')}`;
}
