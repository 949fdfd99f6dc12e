import type { AgentState } from '../agent/agent-state.ts';
import { askAgent } from '../cluster/agent-client.ts';
import { createFlowExplainer } from '../cluster/explain-flow.ts';
import { pausePid } from '../cluster/places.ts';
import { cgroupParent } from '../cluster/processes.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { type ClusterState, clusterPaths, requireCluster } from '../cluster/state.ts';
import {
  type CheckedCluster,
  type CheckSetup,
  localServices,
  setUpCheck,
} from '../conformance/check-cluster.ts';
import type { LocalPlace } from '../conformance/fixture.ts';
import { flowsOf } from '../conformance/flows.ts';
import { type Forger, forgedFlowsOf, runForgedFlows } from '../conformance/forged-flows.ts';
import { probeForged } from '../conformance/forged-probe.ts';
import {
  type PolicyOracle,
  policyFlowsOf,
  policyTexts,
  runPolicyFlows,
} from '../conformance/policy-flows.ts';
import { localPolicies, type PolicyScene, setUpPolicyScene } from '../conformance/policy-scene.ts';
import { socketProber } from '../conformance/probe.ts';
import { createProbeSockets } from '../conformance/probe-sockets.ts';
import { type FlowResult, flowText, type Oracle, runFlows } from '../conformance/run.ts';
import { SCENARIOS } from '../conformance/scenarios.ts';
import { settle } from '../conformance/settle.ts';
import type { Drift, Mode } from '../dataplane/dataplane.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import type { IPFamily } from '../lib/address.ts';
import { systemClock } from '../lib/clock.ts';
import { nodeNetns, outsideNetns } from '../network/topology.ts';
import type { PolicyVerdict } from '../policy/allows.ts';
import { unusedClusterPolicyKinds } from '../policy/follow-cluster-policies.ts';
import { kindsOf } from '../policy/policy-row.ts';
import type { Verdict } from '../service/decide.ts';
import { checkGroups, noSuchFlow } from './check-groups.ts';
import { differenceText, report } from './check-report.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';
import { shutdownSignal } from './logging.ts';
import { NAME_OPTION } from './name-option.ts';
import { texts, wholeNumber } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { checkRemotely } from './remote-check.ts';
import { openRemote, ownCluster, REMOTE_OPTIONS } from './remote-option.ts';
import { showProgress } from './terminal.ts';

/** The check's own pods do not change while it asks; with a listing for each of its questions, `explain` would cost twice as much. */
const OBJECTS_MAX_AGE_MS = 1000;

export const command = defineCommand({
  name: 'check',
  summary: 'send packets through Services and network policies, and compare the results',
  description: [
    'Checks that the nodes handle traffic to Services correctly: creates Services of every policy with endpoints in every state, sends real packets to each kind of address from pods, nodes and outside, over TCP and UDP and every IP family of the cluster, and compares the answering servers, the client addresses that they see, refusals and drops with a table of expectations, and with the decisions of the nodes. Network policies are checked in the same way: for each set of policies in a table, packets between pods, nodes and outside, to pods and through Services. Datagrams of pods with the addresses of others must be dropped. Before the first packet of each flow, "explain" predicts the outcome, the servers and the client address that each server sees; a difference is a failure. Removes what it created. The exit status is 0 when all agree.',
    'With --kubeconfig or --context: on a cluster whose agents run in pods. They send the packets, from nodes and from pods in namespaces that the check creates; policies of the whole cluster and clients outside are not checked.',
  ],
  arguments: [],
  options: {
    name: NAME_OPTION,
    ...REMOTE_OPTIONS,
    only: texts('TEXT', 'only flows whose description contains TEXT', { examples: checkGroups }),
    concurrency: wholeNumber('N', [12, 1, 256], 'the number of concurrent flows'),
    ...FORMAT_OPTIONS,
  },
  asUser: (parsed) => ownCluster('check', parsed),
  async run(parsed, output) {
    const { options } = parsed;
    const { name, only, concurrency } = options;
    const isText = options.output === 'text';
    const remote = await openRemote('check', parsed);
    if (remote) return await checkRemotely(remote, options, output).finally(() => remote.close());
    requireOwner('check', name);
    const state = requireCluster(name);
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    const client = createClient(transport, 'fairlead-check');
    const interrupted = shutdownSignal();
    interrupted.addEventListener('abort', () =>
      output.err('fairlead: removing the namespaces of the check\n'),
    );
    let setup: CheckSetup<LocalPlace> | null = null;
    let starting: Promise<PolicyScene<LocalPlace>> | null = null;
    try {
      const modes = new Map<string, Mode>();
      for (const node of state.nodes) {
        modes.set(node.name, (await askAgent<AgentState>(state, node.name, 'GET', '/state')).mode);
      }
      const started = performance.now();
      const cluster = checkedCluster(state, client, modes);
      const isWanted = (text: string) => only.length === 0 || only.some((one) => text.includes(one));
      const { families } = cluster;
      const isPolicyWanted = policyTexts(families).some(isWanted);
      starting = isPolicyWanted ? setUpPolicyScene(localPolicies(cluster)) : null;
      // Awaited below, after the other set-up, which may fail first.
      starting?.catch(() => {});
      setup = await setUpCheck(localServices(cluster), SCENARIOS);
      const scene = await starting;
      interrupted.throwIfAborted();
      const { fixture } = setup;
      const flows = flowsOf(fixture, SCENARIOS, setup.frontends).filter((flow) => isWanted(flowText(flow)));
      const kinds = await unusedClusterPolicyKinds(client);
      const all = scene ? policyFlowsOf(scene, families) : [];
      const policyFlows = all
        .filter(({ row }) => kindsOf(row).every((kind) => kinds.includes(kind)))
        .map(({ row, flows: ofRow }) => ({ row, flows: ofRow.filter(({ text }) => isWanted(text)) }))
        .filter(({ flows: ofRow }) => ofRow.length > 0);
      const skipped = [...new Set(all.flatMap(({ row }) => kindsOf(row)))].filter(
        (kind) => !kinds.includes(kind),
      );
      const forged = forgedFlowsOf(fixture).filter(({ text }) => isWanted(text));
      const count = policyFlows.reduce(
        (sum, { flows: ofRow }) => sum + ofRow.length,
        flows.length + forged.length,
      );
      if (count === 0) {
        throw noSuchFlow(only);
      }
      const explainer = createFlowExplainer(state, { objectsMaxAgeMs: OBJECTS_MAX_AGE_MS });
      const oracle = agentsOracle(state, modes, explainer);
      await settle(flows, oracle);
      const before = await verify(state);
      let checked = 0;
      const progress = showProgress(output, systemClock, () => `${checked} of ${count} flows checked`);
      const onResult = (result: FlowResult) => {
        interrupted.throwIfAborted();
        checked++;
        if (!isText || result.ok) return;
        progress.hide();
        output.out(wrapLines(differenceText(result), output.columns));
      };
      const sockets = createProbeSockets(systemClock.now());
      const probe = socketProber(sockets, systemClock);
      const nodes = state.nodes.map((node) => node.name);
      const sent = await Promise.all([
        runFlows(fixture, flows, oracle, probe, concurrency, onResult),
        runPolicyFlows({ client, oracle, probe, clock: systemClock, nodes }, policyFlows, onResult),
        runForgedFlows(forged, oracle, forge, onResult),
      ]).finally(() => {
        sockets.close();
        progress.end();
      });
      const results = sent.flat();
      const drifts = before.concat(await verify(state));
      const failed = results.filter(({ ok }) => !ok);
      const seconds = (performance.now() - started) / 1000;
      const facts = renderFacts(
        {
          cluster: state.name,
          modes: Object.fromEntries(modes),
          flows: results,
          drifts,
          failed: failed.length,
          skipped,
        },
        options,
      );
      if (facts !== null) output.out(facts);
      else if (skipped.length > 0)
        output.out(
          `  not checked: ${skipped.join(', ')} (its CustomResourceDefinition is not installed, or the cluster has such policies)\n`,
        );
      if (facts === null) report(output, results, drifts, [...new Set(modes.values())], seconds);
      return failed.length === 0 && drifts.length === 0 ? 0 : 1;
    } finally {
      // A failed set-up has removed what it had made.
      const scene = await starting?.catch(() => null);
      await scene?.close();
      await setup?.close();
      transport.close();
    }
  },
});

const FORGED_PATIENCE_MS = 20_000;

const forge: Forger<LocalPlace> = ({ from, to, family, source }) => {
  const end = ({ netns, addresses }: LocalPlace) => ({ netns, address: addresses[family] ?? '' });
  const ends = { from: end(from), to: end(to), source };
  return probeForged({ ...ends, clock: systemClock, patience: FORGED_PATIENCE_MS });
};

function checkedCluster(
  state: ClusterState,
  client: CheckedCluster['client'],
  modes: ReadonlyMap<string, Mode>,
): CheckedCluster {
  const families: readonly IPFamily[] = state.ipFamily === 'dual' ? ['ipv4', 'ipv6'] : [state.ipFamily];
  return {
    client,
    families,
    nodes: state.nodes,
    wireCidrs: state.wireCidrs,
    outsideAddresses: state.outsideAddresses,
    configuration: state.proxy,
    nodeNetns: (node) => nodeNetns(state.name, node),
    // Only eBPF mode sees the control group of a socket; entering it costs more than sending the packet.
    controlGroup: (node) => (modes.get(node) === 'ebpf' ? cgroupParent(state.name, node) : null),
    outsideNetns: outsideNetns(state.name),
    podNetns: (node, uid) => ({ pid: pausePid(state, node, uid) }),
  };
}

/** Compares the kernel of every node with its ServiceMap, after an update in progress. */
async function verify(state: ClusterState): Promise<(Drift & { node: string })[]> {
  let found: (Drift & { node: string })[] = [];
  for (const { name } of state.nodes) {
    const { drifts } = await askAgent<{ drifts: Drift[] }>(state, name, 'POST', '/verify');
    found = found.concat(drifts.map((drift) => ({ ...drift, node: name })));
  }
  return found;
}

/** Returns the decisions of the nodes' agents. */
function agentsOracle(
  state: ClusterState,
  modes: ReadonlyMap<string, Mode>,
  explainer: ReturnType<typeof createFlowExplainer>,
): Oracle & PolicyOracle {
  return {
    mode: (node) => modes.get(node) ?? state.mode,
    decide: async (node, packets) =>
      (await askAgent<{ verdicts: Verdict[] }>(state, node, 'POST', '/decide', { packets })).verdicts,
    decidePolicies: async (node, packets) =>
      (
        await askAgent<{ verdicts: PolicyVerdict[] }>(state, node, 'POST', '/decide-policies', {
          packets,
        })
      ).verdicts,
    explain: (from, to) => explainer.explain({ from, to, family: null }),
  };
}
