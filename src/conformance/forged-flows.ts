import { hostPort, type IPFamily } from '../lib/address.ts';
import type { Fixture, Place } from './fixture.ts';
import type { Outcome } from './probe.ts';
import type { FlowResult, Oracle } from './run.ts';

/** Datagrams of a pod with a source that is not its own, to another pod of its node. */
export interface ForgedFlow<P extends Place = Place> {
  readonly text: string;
  readonly from: P;
  readonly to: P;
  readonly family: IPFamily;
  readonly source: string;
}

/** Sends the datagrams of a flow; rejects only if they could not be sent. */
export type Forger<P extends Place> = (flow: ForgedFlow<P>) => Promise<Outcome>;

/** Networks for documentation (RFC 5737, RFC 3849): no host has these addresses. */
const UNUSED: Readonly<Record<IPFamily, string>> = { ipv4: '192.0.2.9', ipv6: '2001:db8::9' };

/** Returns the flows: between pods of one node, with the addresses of other pods, of the node, and of no host. */
export function forgedFlowsOf<P extends Place>({
  families,
  places,
  servers,
  primary,
}: Pick<Fixture<P>, 'families' | 'places' | 'servers' | 'primary'>): ForgedFlow<P>[] {
  const pods = places.filter(({ kind }) => kind === 'pod');
  return pods.flatMap((from) => {
    const to = pods.find((one) => one !== from && one.node === from.node);
    if (!to) return [];
    return families.flatMap((family) => {
      const isOther = ({ addresses }: { readonly addresses: Place['addresses'] }) =>
        ![from, to].some((end) => end.addresses[family] === addresses[family]);
      const others = servers.filter(isOther);
      const sources: [what: string, address: string | undefined][] = [
        ['another pod', others.find(({ node }) => node === from.node)?.addresses[family]],
        ['a pod of another node', others.find(({ node }) => node !== from.node)?.addresses[family]],
        ['its node', primary.get(from.node)?.[family]],
        ['no host', UNUSED[family]],
      ];
      return sources.flatMap(([what, source]) =>
        source === undefined || to.addresses[family] === undefined
          ? []
          : [
              {
                text: `forged source: ${from.name} on ${from.node} with the address of ${what}, ${source} → ${to.name}, ${family}`,
                ...{ from, to, family, source },
              },
            ],
      );
    });
  });
}

/** Sends the flows one after the other: all must be dropped, as `explain` predicts. */
export async function runForgedFlows<P extends Place>(
  flows: readonly ForgedFlow<P>[],
  oracle: Pick<Oracle, 'mode' | 'explain'>,
  forge: Forger<P>,
  onResult: (result: FlowResult) => void,
): Promise<FlowResult[]> {
  const results: FlowResult[] = [];
  for (const flow of flows) {
    const { text, from, to, family, source } = flow;
    const target = `${hostPort({ ip: to.addresses[family] ?? '', port: 8080 })}/UDP`;
    // Before the packets, so that the outcome cannot influence it.
    const explanation = await oracle.explain(`${from.name}@${source}`, target);
    const seen = seenText(await forge(flow));
    const explained = explanation.verdict;
    const result: FlowResult = {
      flow: text,
      mode: oracle.mode(from.node),
      expected: 'dropped',
      seen,
      // No table of Services or policies decides about it.
      decided: 'not asked',
      explained,
      sourceProblem: null,
      ok: seen === 'dropped' && explained === 'dropped',
      difference: null,
    };
    onResult(result);
    results.push(result);
  }
  return results;
}

function seenText(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'answer':
      return `arrived from ${outcome.client}`;
    case 'silence':
      return 'dropped';
    case 'refused':
      return 'rejected';
    case 'failed':
      return `failed: ${outcome.error}`;
  }
}
