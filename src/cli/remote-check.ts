import { openRemoteCheck, type RemoteCheck } from '../cluster/remote-check.ts';
import type { RemoteCluster } from '../cluster/remote-cluster.ts';
import { CHECK_NAMESPACE, type CheckSetup, setUpCheck } from '../conformance/check-cluster.ts';
import type { Place } from '../conformance/fixture.ts';
import { type Flow, flowsOf } from '../conformance/flows.ts';
import { forgedFlowsOf, runForgedFlows } from '../conformance/forged-flows.ts';
import { type FlowResult, flowText, runFlows } from '../conformance/run.ts';
import { SCENARIOS } from '../conformance/scenarios.ts';
import { settle } from '../conformance/settle.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { differenceText, report } from './check-report.ts';
import type { Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import { renderFacts } from './output-format.ts';
import { showProgress } from './terminal.ts';

interface CheckOptions {
  readonly only: readonly string[];
  readonly concurrency: number;
  readonly output: 'text' | 'json' | 'yaml';
}

/**
 * Checks a cluster whose agents run in pods. The namespace of the check is removed at the end, also after Ctrl-C; after a
 * second one the process ends at once.
 */
export async function checkRemotely(
  cluster: RemoteCluster,
  options: CheckOptions,
  output: Output,
): Promise<number> {
  const interrupt = new AbortController();
  const interrupted = new Promise<never>((_, reject) => {
    interrupt.signal.addEventListener('abort', () => {
      output.err(`fairlead: removing namespace ${CHECK_NAMESPACE}\n`);
      reject(new FairleadError('interrupted', { op: 'fairlead check', code: 'interrupted' }));
    });
  });
  interrupted.catch(() => {});
  const stop = () => interrupt.abort();
  process.once('SIGINT', stop).once('SIGTERM', stop);
  let setup: Promise<CheckSetup<Place>> | null = null;
  try {
    const check = await openRemoteCheck(cluster, interrupt.signal);
    setup = setUpCheck(check.services, SCENARIOS);
    const made = await Promise.race([setup, interrupted]);
    return await Promise.race([sendFlows(cluster, check, made, options, output), interrupted]);
  } finally {
    // A failed set-up has removed what it had made.
    await (await setup?.catch(() => null))?.close();
    process.off('SIGINT', stop).off('SIGTERM', stop);
  }
}

async function sendFlows(
  cluster: RemoteCluster,
  check: RemoteCheck,
  { fixture, frontends }: CheckSetup<Place>,
  { only, concurrency, output: format }: CheckOptions,
  output: Output,
): Promise<number> {
  const started = performance.now();
  const { oracle, modes, probe } = check;
  const all = flowsOf(fixture, SCENARIOS, frontends);
  const wanted = all.filter((flow) => only.length === 0 || only.some((one) => flowText(flow).includes(one)));
  const { flows, skipped } = await routable(check, wanted);
  const forged = forgedFlowsOf(fixture).filter(
    ({ from, text }) =>
      check.guardsPods(from.node) && (only.length === 0 || only.some((one) => text.includes(one))),
  );
  const unguarded = [...modes.keys()].filter((node) => !check.guardsPods(node));
  if (unguarded.length > 0)
    skipped.push(`forged sources on ${unguarded.join(', ')}, whose pods another plugin connects`);
  const count = flows.length + forged.length;
  if (count === 0)
    throw new FairleadError(`no flow matches --only ${only.join(' or ')}`, {
      op: 'fairlead check',
      code: 'usage',
    });
  await settle(flows, oracle);
  const before = await check.verify();
  let checked = 0;
  const progress = showProgress(output, systemClock, () => `${checked} of ${count} flows checked`);
  const onResult = (result: FlowResult) => {
    checked++;
    if (format !== 'text' || result.ok) return;
    progress.hide();
    output.out(wrapLines(differenceText(result), output.columns));
  };
  const sent = await Promise.all([
    runFlows(fixture, flows, oracle, probe, concurrency, onResult),
    runForgedFlows(forged, oracle, check.forge, onResult),
  ]).finally(() => progress.end());
  const results = sent.flat();
  const drifts = before.concat(await check.verify());
  const failed = results.filter(({ ok }) => !ok).length;
  const notChecked = ['network policies', 'clients outside', ...skipped];
  const facts = renderFacts(
    {
      context: cluster.context,
      modes: Object.fromEntries(modes),
      flows: results,
      drifts,
      failed,
      skipped: notChecked,
    },
    { output: format },
  );
  if (facts !== null) output.out(facts);
  else {
    output.out(wrapLines(`  not checked: ${notChecked.join('; ')}\n`, output.columns));
    report(output, results, drifts, [...new Set(modes.values())], (performance.now() - started) / 1000);
  }
  return failed === 0 && drifts.length === 0 ? 0 : 1;
}

/** Leaves out flows from nodes without a route to the check's addresses: their kernel refuses the packet before any rule. */
async function routable(
  check: RemoteCheck,
  flows: readonly Flow[],
): Promise<{ flows: Flow[]; skipped: string[] }> {
  const routes = new Map<string, Promise<boolean>>();
  const skipped = new Set<string>();
  const kept: Flow[] = [];
  for (const flow of flows) {
    const { from, kind, family, address } = flow;
    if (from.kind === 'node' && (kind === 'loadBalancer' || kind === 'externalIP')) {
      const key = `${from.name} ${family}`;
      const route = routes.get(key) ?? check.hasRoute(from, address);
      routes.set(key, route);
      if (!(await route)) {
        skipped.add(
          `load-balancer addresses and external IPs from ${from.name}, which has no route to them (${family})`,
        );
        continue;
      }
    }
    kept.push(flow);
  }
  return { flows: kept, skipped: [...skipped] };
}
