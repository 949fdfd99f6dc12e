import { openRemoteCheck, type RemoteCheck } from '../cluster/remote-check.ts';
import type { RemoteCluster } from '../cluster/remote-cluster.ts';
import { type CheckSetup, setUpCheck } from '../conformance/check-cluster.ts';
import type { Place } from '../conformance/fixture.ts';
import { type Flow, flowsOf } from '../conformance/flows.ts';
import { forgedFlowsOf, runForgedFlows } from '../conformance/forged-flows.ts';
import { type PolicyFlows, policyFlowsOf, policyTexts, runPolicyFlows } from '../conformance/policy-flows.ts';
import { type PolicyScene, setUpPolicyScene } from '../conformance/policy-scene.ts';
import { type FlowResult, flowText, runFlows } from '../conformance/run.ts';
import { SCENARIOS } from '../conformance/scenarios.ts';
import { settle } from '../conformance/settle.ts';
import type { IPFamily } from '../lib/address.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { kindsOf } from '../policy/policy-row.ts';
import { noSuchFlow } from './check-groups.ts';
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
      output.err('fairlead: removing the namespaces of the check\n');
      reject(new FairleadError('interrupted', { op: 'fairlead check', code: 'interrupted' }));
    });
  });
  interrupted.catch(() => {});
  const stop = () => interrupt.abort();
  process.once('SIGINT', stop).once('SIGTERM', stop);
  let setup: Promise<CheckSetup<Place>> | null = null;
  let starting: Promise<PolicyScene<Place>> | null = null;
  try {
    const check = await openRemoteCheck(cluster, interrupt.signal);
    setup = setUpCheck(check.services, SCENARIOS);
    const isWanted = policyTexts(check.services.families).some(wantedBy(options));
    starting = check.policies && isWanted ? setUpPolicyScene(check.policies) : null;
    const made = await Promise.race([Promise.all([setup, starting]), interrupted]);
    return await Promise.race([sendFlows(cluster, check, made, options, output), interrupted]);
  } finally {
    // A failed set-up has removed what it had made.
    const made = await Promise.all([setup?.catch(() => null), starting?.catch(() => null)]);
    await Promise.all(made.map((one) => one?.close()));
    process.off('SIGINT', stop).off('SIGTERM', stop);
  }
}

async function sendFlows(
  cluster: RemoteCluster,
  check: RemoteCheck,
  [{ fixture, frontends }, scene]: readonly [CheckSetup<Place>, PolicyScene<Place> | null],
  options: CheckOptions,
  output: Output,
): Promise<number> {
  const started = performance.now();
  const { only, concurrency, output: format } = options;
  const { oracle, modes, probe, services } = check;
  const isWanted = wantedBy(options);
  const all = flowsOf(fixture, SCENARIOS, frontends);
  const { flows, skipped } = await routable(
    check,
    all.filter((flow) => isWanted(flowText(flow))),
  );
  const policyFlows = scene ? remotePolicyFlows(scene, services.families, isWanted) : [];
  const forged = forgedFlowsOf(fixture).filter(
    ({ from, text }) => check.guardsPods(from.node) && isWanted(text),
  );
  const unguarded = [...modes.keys()].filter((node) => !check.guardsPods(node));
  if (unguarded.length > 0)
    skipped.push(`forged sources on ${unguarded.join(', ')}, whose pods another plugin connects`);
  const count = policyFlows.reduce(
    (sum, { flows: ofRow }) => sum + ofRow.length,
    flows.length + forged.length,
  );
  if (count === 0) throw noSuchFlow(only);
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
    runPolicyFlows(
      { client: cluster.client, oracle, probe, clock: systemClock, nodes: [...modes.keys()] },
      policyFlows,
      onResult,
    ),
    runForgedFlows(forged, oracle, check.forge, onResult),
  ]).finally(() => progress.end());
  const results = sent.flat();
  const drifts = before.concat(await check.verify());
  const failed = results.filter(({ ok }) => !ok).length;
  const policies = check.policies
    ? 'policies of the whole cluster'
    : 'network policies, which not all of these agents enforce';
  const notChecked = [policies, 'clients outside', ...skipped];
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

const wantedBy =
  ({ only }: Pick<CheckOptions, 'only'>) =>
  (text: string): boolean =>
    only.length === 0 || only.some((one) => text.includes(one));

/** Returns the flows of NetworkPolicies: those of the whole cluster would change what pods of others may do. */
function remotePolicyFlows(
  scene: PolicyScene<Place>,
  families: readonly IPFamily[],
  isWanted: (text: string) => boolean,
): PolicyFlows<Place>[] {
  return policyFlowsOf(scene, families)
    .filter(({ row }) => kindsOf(row).length === 0)
    .map(({ row, flows }) => ({
      row,
      // No server of the check runs on nodes.
      flows: flows.filter(({ text, to, isAllowed }) => isWanted(text) && (to.kind === 'pod' || !isAllowed)),
    }))
    .filter(({ flows }) => flows.length > 0);
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
