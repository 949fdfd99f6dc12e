import type { Mode } from '../dataplane/dataplane.ts';
import { pause, systemClock } from '../lib/clock.ts';
import type { Explanation } from '../observe/explain-view.ts';
import type { Verdict } from '../service/decide.ts';
import type { Packet } from '../service/model.ts';
import { expectationIn } from './differences.ts';
import type { Expectation } from './expectation.ts';
import { type Flow, packetOf } from './flows.ts';
import type { Layout } from './layout.ts';
import { type Outcome, probeTcp, probeUdp } from './probe.ts';

/** What the nodes' own programs say about a packet. */
export interface Oracle {
  mode(node: string): Mode;
  decide(node: string, packets: readonly Packet[]): Promise<readonly Verdict[]>;
  explain(node: string, from: string, to: string): Promise<Explanation>;
}

/** A flow with what was expected and what was seen of it. */
export interface FlowResult {
  readonly flow: string;
  readonly mode: Mode;
  readonly expected: string;
  readonly seen: string;
  readonly decided: string;
  readonly explained: string;
  readonly ok: boolean;
  /** Why the mode differs here from the others, where it must. */
  readonly difference: string | null;
}

/** Answers wait this long on a busy machine before they count as silence; drops are silent at once. */
const PATIENCE_MS = 8000;
const SILENCE_MS = 700;
/** With three servers, one stays unseen this often by chance once in ten thousand million times. */
const MAX_TRIES = 64;
const MIN_TRIES = 3;
/**
 * After so many tries each flow goes on at a pace of its own: where endpoints are taken in turn, flows to one Service
 * that ask in step would each meet the same few forever.
 */
const TRIES_IN_STEP = 6;
const PACES = 17;

/** Sends every flow's packets, some flows at once, and compares what is seen, decided and explained with the table. */
export async function runFlows(
  layout: Layout,
  flows: readonly Flow[],
  oracle: Oracle,
  concurrency: number,
  onResult: (result: FlowResult) => void = () => {},
): Promise<FlowResult[]> {
  const results: FlowResult[] = [];
  const unheard: number[] = [];
  let next = 0;
  const worker = async () => {
    for (;;) {
      const index = next++;
      const flow = flows[index];
      if (!flow) return;
      const result = await runFlow(layout, flow, oracle, index % PACES);
      results[index] = result;
      if (isUnheardRefusal(flow, result)) unheard.push(index);
      else onResult(result);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  for (const index of unheard) {
    const flow = flows[index];
    if (!flow) continue;
    const result = await runFlow(layout, flow, oracle, index % PACES);
    results[index] = result;
    onResult(result);
  }
  return results;
}

/**
 * Of the refusals of datagrams a kernel sends one a second to each host (net.ipv4.icmp_ratelimit), and the flows of one
 * host share them: those that got none get a turn of their own.
 */
function isUnheardRefusal({ protocol, expected }: Flow, { seen }: FlowResult): boolean {
  return protocol === 'UDP' && expected.action === 'reject' && seen === 'dropped';
}

async function runFlow(layout: Layout, flow: Flow, oracle: Oracle, paceMs: number): Promise<FlowResult> {
  const node = flow.from.node;
  const mode = oracle.mode(node);
  const { expected, difference } = expectationIn(mode, flow);
  const [verdict] = await oracle.decide(node, [packetOf(flow)]);
  const explanation = await oracle.explain(node, flow.from.name, targetText(flow));
  const seen = await send(layout, flow, expected, mode, paceMs);
  const decided = decidedText(layout, flow, verdict);
  const explained = explainedText(layout, explanation);
  const wanted = expectationText(flow.expected, true);
  return {
    flow: flowText(flow),
    mode,
    expected: expectationText(expected, true),
    seen,
    decided,
    explained,
    ok:
      seen === expectationText(expected, true) &&
      decided === wanted &&
      explained === expectationText(flow.expected, false),
    difference,
  };
}

/** Sends until every expected server has answered, or something else has happened; says what. */
async function send(
  layout: Layout,
  flow: Flow,
  expected: Expectation,
  mode: Mode,
  paceMs: number,
): Promise<string> {
  const probe = flow.protocol === 'TCP' ? probeTcp : probeUdp;
  const target = {
    netns: flow.from.netns,
    controlGroup: flow.from.controlGroup,
    address: flow.address,
    port: flow.port,
    patience: expected.action === 'drop' ? SILENCE_MS : PATIENCE_MS,
  };
  const servers = new Set<string>();
  const sources = new Set<string>();
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    if (tries >= TRIES_IN_STEP) await pause(systemClock, paceMs);
    const outcome = await probe(target);
    if (outcome.kind !== 'answer') return outcomeText(outcome);
    if (flow.protocol === 'TCP' && outcome.message !== flow.message) {
      return `answered by the server of another port (${outcome.message})`;
    }
    servers.add(outcome.server);
    sources.add(sourceOf(layout, flow, expected, outcome, mode));
    if (expected.action !== 'forward') break;
    const enough = flow.sticky ? tries >= 8 : expected.servers.every((name) => servers.has(name));
    if (enough && tries + 1 >= MIN_TRIES) break;
  }
  const seen = [...servers].sort();
  if (
    flow.sticky &&
    seen.length === 1 &&
    expected.action === 'forward' &&
    expected.servers.includes(seen[0] ?? '')
  ) {
    // One of them, and always the same: that is what affinity promises.
    return forwardText(expected.servers, [...sources].join(' and '));
  }
  return forwardText(seen, [...sources].join(' and '));
}

/** Whom the server saw: the client, the node, or an address that is neither. */
function sourceOf(
  layout: Layout,
  flow: Flow,
  expected: Expectation,
  answer: Extract<Outcome, { kind: 'answer' }>,
  mode: Mode,
): string {
  const own = flow.from.addresses[flow.family];
  const isNode = layout.nodeAddresses.get(flow.from.node)?.has(answer.client) === true;
  const isSelf = flow.from.name.endsWith(`/${answer.server}`);
  // A pod that reaches itself must see the node, or its answer would not pass the translation on its way back.
  // Where sockets are balanced, the packets do not leave the pod, and what it sees is itself.
  if (isSelf && mode === 'ebpf' && answer.client === own) return expectedSource(expected) ?? 'client';
  if (isSelf) return isNode ? (expectedSource(expected) ?? 'node') : `itself (${answer.client})`;
  if (flow.from.kind === 'node') return isNode ? 'node' : answer.client;
  if (answer.client === own) return 'client';
  return isNode ? 'node' : answer.client;
}

function expectedSource(expected: Expectation): 'client' | 'node' | null {
  return expected.action === 'forward' ? expected.source : null;
}

function outcomeText(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'refused':
      return 'rejected';
    case 'silence':
      return 'dropped';
    case 'failed':
      return `failed: ${outcome.error}`;
    case 'answer':
      return forwardText([outcome.server], outcome.client);
  }
}

function decidedText(layout: Layout, flow: Flow, verdict: Verdict | undefined): string {
  if (!verdict) return 'nothing';
  switch (verdict.action) {
    case 'reject':
      return 'rejected';
    case 'drop':
      return 'dropped';
    case 'pass':
      return 'passed on';
    case 'forward': {
      const names = verdict.candidates.map(({ endpoint }) => serverAt(layout, endpoint.ip));
      const sources = new Set(
        verdict.candidates
          .filter(({ hairpin }) => !hairpin)
          .map(({ masquerade }) => (masquerade || flow.from.kind === 'node' ? 'node' : 'client')),
      );
      const hairpinOnly = sources.size === 0 ? (expectedSource(flow.expected) ?? 'node') : null;
      return forwardText(names, hairpinOnly ?? [...sources].join(' and '));
    }
  }
}

function explainedText(layout: Layout, { verdict, endpoints }: Explanation): string {
  if (verdict !== 'delivered') return verdict;
  return `servers ${endpoints
    .map(({ address }) => serverAt(layout, address))
    .sort()
    .join(', ')}`;
}

function serverAt(layout: Layout, address: string): string {
  return layout.servers.find(({ addresses }) => Object.values(addresses).includes(address))?.name ?? address;
}

function expectationText(expected: Expectation, withSource: boolean): string {
  if (expected.action !== 'forward') return expected.action === 'reject' ? 'rejected' : 'dropped';
  return withSource
    ? forwardText(expected.servers, expected.source)
    : `servers ${[...expected.servers].sort().join(', ')}`;
}

function forwardText(servers: readonly string[], source: string): string {
  return `servers ${[...servers].sort().join(', ')}, which see the ${source}`;
}

function targetText({ address, port, protocol }: Flow): string {
  return `${address.includes(':') ? `[${address}]` : address}:${port}/${protocol}`;
}

/** As a person names a flow. */
export function flowText(flow: Flow): string {
  const by = flow.from.kind === 'outside' ? ` by ${flow.from.node}` : ` on ${flow.from.node}`;
  const from = flow.from.kind === 'node' ? flow.from.name : `${flow.from.name}${by}`;
  return `${flow.scenario}: ${from} → ${flow.kind} ${targetText(flow)}`;
}
