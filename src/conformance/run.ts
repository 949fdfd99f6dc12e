import type { Mode } from '../dataplane/dataplane.ts';
import { pause, systemClock } from '../lib/clock.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { Verdict } from '../service/decide.ts';
import type { Packet } from '../service/model.ts';
import { expectationIn, type ModeExpectation } from './differences.ts';
import type { Expectation } from './expectation.ts';
import type { Fixture, Place } from './fixture.ts';
import { type Flow, packetOf } from './flows.ts';
import type { Outcome, Prober } from './probe.ts';

/** The nodes' own decisions about a packet. */
export interface Oracle {
  mode(node: string): Mode;
  decide(node: string, packets: readonly Packet[]): Promise<readonly Verdict[]>;
  explain(from: string, to: string): Promise<Explanation>;
}

/** A flow with its expected and its observed outcome. */
export interface FlowResult {
  readonly flow: string;
  readonly mode: Mode;
  readonly expected: string;
  readonly seen: string;
  readonly decided: string;
  readonly explained: string;
  /** A server that saw another client address than `explain` had named; null: none. */
  readonly sourceProblem: string | null;
  readonly ok: boolean;
  /** The documented difference of the mode that applies here. */
  readonly difference: string | null;
}

/** How long an answer may take on a busy machine before it counts as silence. */
const PATIENCE_MS = 20_000;
const SILENCE_MS = 700;
/** With three servers, the probability that one is not reached in this many tries is one in ten billion. */
const MAX_TRIES = 64;
const MIN_TRIES = 3;
/**
 * After this many tries each flow continues at its own pace: with round robin, flows to one Service
 * that send in lockstep would always reach the same few endpoints.
 */
const TRIES_IN_STEP = 6;
const PACES = 17;

/** Sends every flow's packets, some flows concurrently, and compares the observed outcome, the decision and the explanation
with the table. */
export async function runFlows<P extends Place>(
  fixture: Fixture,
  flows: readonly Flow<P>[],
  oracle: Oracle,
  probe: Prober<P>,
  concurrency: number,
  onResult: (result: FlowResult) => void = () => {},
): Promise<FlowResult[]> {
  const results: FlowResult[] = [];
  const unheard: number[] = [];
  const decided = await decideAll(flows, oracle);
  const run = (flow: Flow<P>, index: number) =>
    runFlow(fixture, flow, decided.get(flow), oracle, probe, index % PACES);
  let next = 0;
  const worker = async () => {
    for (;;) {
      const index = next++;
      const flow = flows[index];
      if (!flow) return;
      const result = await run(flow, index);
      results[index] = result;
      if (isUnheardRefusal(flow, result)) unheard.push(index);
      else onResult(result);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  for (const index of unheard) {
    const flow = flows[index];
    if (!flow) continue;
    const result = await run(flow, index);
    results[index] = result;
    onResult(result);
  }
  return results;
}

/** Asks each node once what it decides about all flows that enter there. */
async function decideAll(flows: readonly Flow[], oracle: Oracle): Promise<ReadonlyMap<Flow, Verdict>> {
  const decided = new Map<Flow, Verdict>();
  for (const [node, entering] of Map.groupBy(flows, ({ from }) => from.node)) {
    const verdicts = await oracle.decide(node, entering.map(packetOf));
    for (const [index, verdict] of verdicts.entries()) {
      const flow = entering[index];
      if (flow) decided.set(flow, verdict);
    }
  }
  return decided;
}

/**
 * The kernel sends one ICMP error a second to each host (net.ipv4.icmp_ratelimit), which all flows of the host share:
 * flows that got none are repeated one by one.
 */
function isUnheardRefusal({ protocol, expected }: Flow, { seen }: FlowResult): boolean {
  return protocol === 'UDP' && expected.action === 'reject' && seen === 'dropped';
}

async function runFlow<P extends Place>(
  fixture: Fixture,
  flow: Flow<P>,
  verdict: Verdict | undefined,
  oracle: Oracle,
  probe: Prober<P>,
  paceMs: number,
): Promise<FlowResult> {
  const node = flow.from.node;
  const mode = oracle.mode(node);
  const expectation = expectationIn(mode, flow);
  const { expected, difference } = expectation;
  // Before the first packet, so that the outcome cannot influence it.
  const explanation = await oracle.explain(flow.from.name, targetText(flow));
  const sightings: Sighting[] = [];
  const seen = await send(fixture, flow, expectation, probe, paceMs, (sighting) => sightings.push(sighting));
  const sourceProblem = findSourceProblem(fixture, explanation, sightings);
  const decided = decidedText(fixture, flow, verdict);
  const explained = explainedText(fixture, explanation);
  const wanted = expectationText(flow.expected, true);
  return {
    flow: flowText(flow),
    mode,
    expected: expectationText(expected, true),
    seen,
    decided,
    explained,
    sourceProblem,
    ok:
      sourceProblem === null &&
      seen === expectationText(expected, true) &&
      decided === wanted &&
      explained === expectationText(flow.expected, false),
    difference,
  };
}

/** Sends until every expected server has answered or another outcome has occurred; returns what was observed. */
async function send<P extends Place>(
  fixture: Fixture,
  flow: Flow<P>,
  expectation: ModeExpectation,
  probe: Prober<P>,
  paceMs: number,
  onAnswer: (sighting: Sighting) => void,
): Promise<string> {
  const { expected } = expectation;
  const target = {
    from: flow.from,
    protocol: flow.protocol,
    family: flow.family,
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
    onAnswer({ server: outcome.server, client: outcome.client });
    sources.add(sourceOf(fixture, flow, expectation, outcome));
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
    // With affinity, always the same server.
    return forwardText(expected.servers, [...sources].join(' and '));
  }
  return forwardText(seen, [...sources].join(' and '));
}

/** The client address that a server saw. */
interface Sighting {
  readonly server: string;
  readonly client: string;
}

function findSourceProblem(
  fixture: Fixture,
  { endpoints }: Explanation,
  sightings: readonly Sighting[],
): string | null {
  for (const { server, client } of sightings) {
    const explained =
      endpoints.find(({ address }) => serverAt(fixture, address) === server)?.clientSeen ?? null;
    // Null: unknown to `explain`.
    if (explained !== null && explained !== client) return `${server} sees ${client}, explained ${explained}`;
  }
  return null;
}

/** Returns which source the server saw: the client, the node, or an address that is neither. */
function sourceOf(
  fixture: Fixture,
  flow: Flow,
  { expected, self }: ModeExpectation,
  answer: Extract<Outcome, { kind: 'answer' }>,
): string {
  const own = flow.from.addresses[flow.family];
  const isNode = fixture.nodeAddresses.get(flow.from.node)?.has(answer.client) === true;
  const isSelf = flow.from.name.endsWith(`/${answer.server}`);
  if (isSelf) {
    const seen = self.find((source) => (source === 'node' ? isNode : answer.client === own));
    return seen ? (expectedSource(expected) ?? seen) : `itself (${answer.client})`;
  }
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

function decidedText(fixture: Fixture, flow: Flow, verdict: Verdict | undefined): string {
  if (!verdict) return 'nothing';
  switch (verdict.action) {
    case 'reject':
      return 'rejected';
    case 'drop':
      return 'dropped';
    case 'pass':
      return 'passed on';
    case 'forward': {
      const names = verdict.candidates.map(({ endpoint }) => serverAt(fixture, endpoint.ip));
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

function explainedText(fixture: Fixture, { verdict, endpoints }: Explanation): string {
  if (verdict !== 'delivered') return verdict;
  return `servers ${endpoints
    .map(({ address }) => serverAt(fixture, address))
    .sort()
    .join(', ')}`;
}

function serverAt(fixture: Fixture, address: string): string {
  return fixture.servers.find(({ addresses }) => Object.values(addresses).includes(address))?.name ?? address;
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

/** Describes a flow in words. */
export function flowText(flow: Flow): string {
  const by = flow.from.kind === 'outside' ? ` by ${flow.from.node}` : ` on ${flow.from.node}`;
  const from = flow.from.kind === 'node' ? flow.from.name : `${flow.from.name}${by}`;
  return `${flow.scenario}: ${from} → ${flow.kind} ${targetText(flow)}`;
}
