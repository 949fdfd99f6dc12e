import assert from 'node:assert/strict';
import { createFlowExplainer } from '../../src/cluster/explain-flow.ts';
import type { ClusterState } from '../../src/cluster/state.ts';
import type { Mode } from '../../src/dataplane/dataplane.ts';
import {
  renderExplanation,
  renderShort,
  SHORT_COLUMNS,
  SHORT_LINES,
} from '../../src/observe/explain-text.ts';
import type { Explanation } from '../../src/observe/explanation.ts';
import type { Asker, Met } from './question-asker.ts';
import type { QuestionRow, Reality } from './questions.ts';

/** Number of requests to a Service with several endpoints. */
const MANY = 16;
const FEW = 2;
/**
 * Longer than the three seconds after which a kernel reports that no host has an address; an answer may take long on a
 * busy machine.
 */
const SILENCE_MS = 4500;
const PATIENCE_MS = 10_000;

/** Addresses that are chosen when the cluster starts. */
export interface SceneAddresses {
  /** By Service, IPv4. */
  readonly loadBalancers: ReadonlyMap<string, string>;
  /** The nodes' addresses on their bridges, in the order of the nodes, IPv4. */
  readonly bridges: readonly string[];
}

/** How often a question is asked again because its load-balancer address has moved in between. */
const MAX_MOVES = 2;

/**
 * Compares what `explain` says with what a client in the same place meets. An address that moved to another node after it
 * was explained is explained, and asked, again.
 */
export async function compareQuestion(
  state: ClusterState,
  asker: Asker,
  mode: Mode,
  row: QuestionRow,
  { loadBalancers, bridges }: SceneAddresses,
): Promise<void> {
  const { nodes } = state;
  const nodeAddress = (index: number) => {
    const address = nodes[index]?.addresses[row.family === 6 ? 1 : 0] ?? '';
    return address.includes(':') ? `[${address}]` : address;
  };
  const to = row.to
    .replace('NODE1', nodeAddress(0))
    .replace('NODE2', nodeAddress(1))
    .replace(/BRIDGE([12])/, (_, number: string) => bridges[Number(number) - 1] ?? '')
    .replace(/LB\(([a-z-]+)\)/, (_, name: string) => loadBalancers.get(name) ?? '');
  const family = row.family ?? 4;
  const explain = () =>
    createFlowExplainer(state).explain({ from: row.from, to, family: family === 6 ? 'ipv6' : 'ipv4' });
  const place = { asker, mode, family, isTunnelled: state.overlay === 'vxlan' } as const;
  let explanation = await explain();
  for (let moves = 0; ; moves++) {
    try {
      return await compareWith(explanation, to, row, place);
    } catch (error) {
      const now = await explain();
      if (moves === MAX_MOVES || announcerIn(now) === announcerIn(explanation)) throw error;
      explanation = now;
    }
  }
}

/** Returns the node that announces the destination; null: none, or the destination is not announced. */
function announcerIn({ steps }: Explanation): string | null {
  return steps.find(({ ruleOrKey }) => ruleOrKey === 'spec.holderIdentity')?.text ?? null;
}

interface Place {
  readonly asker: Asker;
  readonly mode: Mode;
  readonly family: 4 | 6;
  readonly isTunnelled: boolean;
}

async function compareWith(
  explanation: Explanation,
  to: string,
  row: QuestionRow,
  { asker, mode, family, isTunnelled }: Place,
): Promise<void> {
  const tunnelled = isTunnelled ? row.tunnelled : undefined;
  const expected = row.in?.[mode] ?? tunnelled ?? row.real;
  const count = explanation.endpoints.length > 1 ? MANY : FEW;
  const patienceMs = expected === 'silence' ? (row.silenceMs ?? SILENCE_MS) : PATIENCE_MS;
  const met = await asker.ask({ ...addressed(to, explanation), family, count, patienceMs });
  const seen = realityOf(met, mode === 'userspace' && explanation.endpoints.length > 0);
  const text = renderExplanation(explanation);
  const counted = countOutcomes(met);
  assert.equal(seen, expected, `the scene is not what it should be: ${counted}\n${text}`);
  assert.equal(SAID[explanation.verdict], seen, `explain is wrong: ${counted}\n${text}`);
  // The programs see a process of the node or not, depending on its control group.
  compareAnswers(met, explanation, mode === 'ebpf' && row.from.startsWith('node/'));
  const short = renderShort(explanation).trimEnd();
  assert.ok(short.split('\n').length <= SHORT_LINES, short);
  for (const line of short.split('\n')) assert.ok(line.length <= SHORT_COLUMNS, line);
  if (row.says) assert.match(short, row.says);
}

/** Compares the answering endpoints and the source address that they see with the explanation. */
function compareAnswers(
  met: readonly Met[],
  { endpoints, clientSeen }: Explanation,
  mayBeUnknown: boolean,
): void {
  for (const one of met) {
    if (one.kind !== 'answer' || one.server === '') continue;
    if (endpoints.length === 0) {
      assert.equal(one.client, clientSeen, `${one.server} sees another client`);
      continue;
    }
    // A server in the host network has its node's name.
    const found = endpoints.find(({ pod, node }) => pod?.endsWith(`/${one.server}`) || node === one.server);
    assert.ok(found, `${one.server} answers, which is not among the endpoints`);
    if (mayBeUnknown && found.clientSeen === null) continue;
    assert.equal(one.client, found.clientSeen, `${one.server} sees another client`);
  }
}

const SAID: Readonly<Record<Explanation['verdict'], Reality | 'unknown'>> = {
  delivered: 'answer',
  partial: 'some',
  unreachable: 'unreachable',
  rejected: 'refused',
  dropped: 'silence',
  unresolved: 'unresolved',
  unknown: 'unknown',
};

/** Returns the address that a client in this place connects to. Names are left to its resolver. */
function addressed(
  to: string,
  { packet }: Explanation,
): { host: string; port: number; protocol: 'tcp' | 'udp' } {
  const typed = to.replace(/^https?:\/\/([^/]*).*$/, '$1').replace(/\/(tcp|udp)$/i, '');
  const name = /^([a-z0-9.-]+)(:[0-9]+)?$/.exec(typed);
  const protocol = packet?.protocol === 'UDP' ? 'udp' : 'tcp';
  if (packet === null || (name && !/^[0-9.]+(:[0-9]+)?$/.test(typed) && !typed.startsWith('outside'))) {
    return { host: name?.[1] ?? typed, port: packet?.port ?? 80, protocol };
  }
  return { host: packet.destination, port: packet.port, protocol };
}

/** Returns each different outcome with how many requests had it, for the message of a failed comparison. */
function countOutcomes(met: readonly Met[]): string {
  const same = Map.groupBy(met, (one) => JSON.stringify(one));
  return [...same].map(([text, all]) => `${all.length} × ${text}`).join(', ');
}

function realityOf(met: readonly Met[], isProxied: boolean): Reality | string {
  const kinds = new Set(met.map(({ kind }) => (isProxied ? (BEHIND_PROXY[kind] ?? kind) : kind)));
  const [only = ''] = kinds;
  const first = met[0];
  if (kinds.size === 1) return first?.kind === 'failed' ? first.error : only === 'accepted' ? 'answer' : only;
  return kinds.has('answer') && kinds.has('refused') && kinds.size === 2
    ? 'some'
    : [...kinds].sort().join(' and ');
}

/**
 * A proxy has accepted the connection before it knows whether an endpoint will: it can only reset the
 * connection or not answer.
 */
const BEHIND_PROXY: Partial<Record<Met['kind'], Reality>> = { reset: 'refused', accepted: 'silence' };
