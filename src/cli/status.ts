import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import { announcedAddresses } from '../cluster/announced-addresses.ts';
import { openCluster } from '../cluster/cluster-access.ts';
import { runsIn } from '../cluster/cluster-report.ts';
import { API_SERVER } from '../cluster/control-plane-programs.ts';
import { presentWarnings } from '../cluster/kept-warnings.ts';
import { NODE_DNS } from '../cluster/node-dns.ts';
import { programWarnings } from '../cluster/requirements.ts';
import { CONTROL_PLANE } from '../cluster/supervision.ts';
import { type Client, createClient, hasReason, readBody } from '../kube/client.ts';
import type { Credentials } from '../kube/credentials.ts';
import { EGRESS_GATEWAYS, type EgressGatewayObject } from '../kube/egress-gateway.ts';
import { ANNOUNCEMENT_LABEL } from '../kube/load-balancer.ts';
import { httpTransport, type Transport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { PROXY_NAME_LABEL, SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { hostPort } from '../lib/address.ts';
import { systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { type Problem, problem } from './problem.ts';
import { processProblems, viewsOf } from './process-view.ts';
import { openRemote, ownCluster, REMOTE_OPTIONS } from './remote-option.ts';
import { remoteStatus, remoteStatusText } from './remote-status.ts';
import { serviceFaults } from './service-faults.ts';
import { sizeProblems } from './size-problems.ts';
import { ingressProblems, readIngresses } from './status-ingresses.ts';
import {
  egressProblems,
  failedProbes,
  faultProblem,
  gatewayProblems,
  nodeProblems,
  podNotReady,
  portProblem,
  recordNotWritable,
  serviceProblems,
} from './status-problems.ts';
import { type StatusFacts, statusText } from './status-text.ts';

export const command = defineCommand({
  name: 'status',
  summary: 'show processes, nodes and Services, and all problems with their causes',
  description: [
    'Shows a local cluster: its processes, its nodes and their modes, Services with their frontends and endpoints, the node that announces each load-balancer address, and all problems with their causes. The exit status is 0 if everything is healthy.',
    'With --kubeconfig or --context: a cluster whose agents run in pods: its nodes with what their agents report, and all problems.',
  ],
  arguments: [],
  options: { name: NAME_OPTION, ...REMOTE_OPTIONS, ...FORMAT_OPTIONS },
  asUser: (parsed) => ownCluster('status', parsed),
  async run(parsed, output) {
    const { options } = parsed;
    const remote = await openRemote('status', parsed);
    if (remote) {
      try {
        const status = await remoteStatus(remote);
        output.out(renderFacts(status, options) ?? remoteStatusText(status, systemClock.now(), output));
        return status.problems.length === 0 ? 0 : 1;
      } finally {
        remote.close();
      }
    }
    const cluster = await openCluster(options.name);
    const { state, supervision, recordProblem, ports: reports, egress, nameProblem } = cluster.report;
    const runs = runsIn(cluster.report);
    const problems: Problem[] = [];
    const processes = viewsOf(state, supervision, systemClock.now(), runs);
    problems.push(...processProblems(processes, state));
    problems.push(...sizeProblems(cluster.report.links ?? []));
    if (recordProblem !== null) problems.push(recordNotWritable(recordProblem, state));
    const server = state.realControlPlane ? [API_SERVER, CONTROL_PLANE] : [CONTROL_PLANE];
    const seen = server.every((one) => runs(supervision.processes[one]?.identity ?? null))
      ? await look(state.name, cluster.credentials).catch((error: unknown) => {
          if (!state.realControlPlane) throw error;
          // It answers some seconds after its start.
          problems.push(unhealthyServer(`${API_SERVER} does not answer: ${messageOf(error)}`));
          return null;
        })
      : null;
    problems.push(...(seen?.failedChecks ?? []).map(unhealthyServer));
    const nodes = state.nodes.map((node) => {
      const object = seen?.nodes.find((one) => one.metadata?.name === node.name);
      const ready = object?.status?.conditions?.find((condition) => condition.type === 'Ready');
      if (seen) problems.push(...nodeProblems(node.name, object, state));
      const pods = seen?.pods.filter((pod) => pod.spec?.nodeName === node.name).length ?? 0;
      return {
        name: node.name,
        addresses: node.addresses,
        mode: object?.metadata?.annotations?.[MODE_ANNOTATION] ?? state.mode,
        ready: ready?.status === 'True',
        pods,
      };
    });
    const services = (seen?.services ?? []).map((service) => {
      const { name = '', namespace = '' } = service.metadata ?? {};
      const slices = (seen?.slices ?? []).filter(
        (slice) =>
          slice.metadata?.namespace === namespace &&
          (slice.metadata?.labels as Record<string, string> | undefined)?.[SERVICE_NAME_LABEL] === name,
      );
      const endpoints = slices.flatMap((slice) => slice.endpoints ?? []);
      const readyOnes = endpoints.filter((endpoint) => endpoint.conditions?.ready !== false);
      const ready = readyOnes.flatMap((endpoint) => endpoint.addresses);
      // A pod with addresses of both families is in two slices.
      const pods = (list: typeof endpoints) =>
        new Set(list.map(({ targetRef, addresses }) => targetRef?.uid ?? addresses[0])).size;
      const { leases = [], pods: allPods = [] } = seen ?? {};
      problems.push(...serviceProblems(service, { slices, pods: allPods, leases }));
      const frontends = (service.spec?.ports ?? []).flatMap((port) => [
        // Of a headless Service, DNS gives the endpoints' addresses.
        ...(service.spec?.clusterIPs ?? [])
          .filter((ip) => ip !== 'None')
          .map((ip) => `${hostPort({ ip, port: port.port })}/${port.protocol ?? 'TCP'}`),
        ...(port.nodePort ? [`node:${port.nodePort}/${port.protocol ?? 'TCP'}`] : []),
      ]);
      return {
        namespace,
        name,
        type: service.spec?.type ?? '',
        frontends,
        ready,
        endpoints: endpoints.length,
        summary:
          service.metadata?.labels?.[PROXY_NAME_LABEL] === NODE_DNS
            ? 'answered by each node'
            : `${pods(readyOnes)} of ${pods(endpoints)} ready`,
        loadBalancer: announcedAddresses(service, seen?.leases ?? []),
      };
    });
    const probes = failedProbes(seen?.events ?? []);
    problems.push(...(seen?.gateways ?? []).flatMap(gatewayProblems));
    problems.push(...(seen?.pods ?? []).flatMap((pod) => podNotReady(pod, probes) ?? []));
    const [first] = nodes.filter(({ ready }) => ready);
    // Agents explain: without one, the problems of its process and its node say so.
    if (seen && first && nodes.every(({ ready }) => ready)) {
      const faults = await serviceFaults(seen.services, first.name, cluster.explainer().explain);
      const explained = new Set(faults.map(({ object }) => object));
      const isGeneral = ({ code, object }: Problem) =>
        code === 'service-without-endpoints' && explained.has(object);
      problems.splice(0, problems.length, ...problems.filter((one) => !isGeneral(one)), ...faults);
      problems.push(...(await cluster.faults.list()).map(faultProblem));
    }
    const ingresses = seen?.ingresses ?? [];
    problems.push(...ingressProblems(ingresses, seen?.slices ?? []));
    const ports = state.publishedPorts.map(({ localPort, service }, i) => {
      const { problem: closed = null } = reports[i] ?? {};
      if (closed !== null) problems.push(portProblem(localPort, closed));
      const exists =
        seen === null ||
        seen.services.some(
          ({ metadata }) => metadata?.namespace === service.namespace && metadata.name === service.name,
        );
      return {
        port: localPort,
        service,
        status: closed !== null ? 'Closed' : exists ? 'Open' : 'Open, waits for the Service',
      };
    });
    problems.push(...egressProblems(egress, nameProblem));
    const warnings = [...(await programWarnings()), ...(seen?.warnings ?? [])];
    const facts: StatusFacts = {
      ...{ name: state.name, processes, nodes, services, ingresses, ports, egress, problems, warnings },
    };
    output.out(renderFacts(facts, options) ?? statusText(facts, state, output));
    return problems.length === 0 ? 0 : 1;
  },
});

async function look(cluster: string, credentials: Credentials) {
  const transport = httpTransport(credentials);
  try {
    const client = createClient(transport, 'fairlead-status');
    const [failed, warnings, nodes, pods, services, slices, leases, events, gateways, ingresses] =
      await Promise.all([
        failedChecks(transport),
        presentWarnings(cluster, transport),
        client.list(RESOURCES.nodes),
        client.list(RESOURCES.pods),
        client.list(RESOURCES.services),
        client.list(RESOURCES.endpointSlices),
        client.list(RESOURCES.leases, { labelSelector: ANNOUNCEMENT_LABEL }),
        client.list(RESOURCES.events, { fieldSelector: 'reason=Unhealthy' }),
        listGateways(client),
        readIngresses(client),
      ]);
    return {
      failedChecks: failed,
      warnings,
      nodes: nodes.items,
      pods: pods.items,
      services: services.items,
      slices: slices.items,
      leases: leases.items,
      events: events.items,
      gateways,
      ingresses,
    };
  } finally {
    transport.close();
  }
}

/** Lists the EgressGateways; none if their definition was removed. */
async function listGateways(client: Client): Promise<EgressGatewayObject[]> {
  try {
    return (await client.list(EGRESS_GATEWAYS)).items;
  } catch (error) {
    if (hasReason(error, 'NotFound')) return [];
    throw error;
  }
}

/** Returns the checks that the API server reports as failed, such as that it can read and write its objects. */
async function failedChecks(transport: Transport): Promise<string[]> {
  const { status, body } = await transport({ method: 'GET', path: '/readyz', headers: {} });
  const text = await readBody(body);
  if (status === 200) return [];
  const failed = text.split('\n').flatMap((line) => /^\[-\](.+)/.exec(line)?.[1] ?? []);
  // kube-apiserver withholds the reasons; the embedded server gives that of its storage to both checks.
  const reasons = failed.map((check) => check.replace(/^etcd(-readiness)? failed: (?!reason withheld)/, ''));
  return reasons.length > 0 ? [...new Set(reasons)] : [text.split('\n')[0] ?? text];
}

const unhealthyServer = (text: string): Problem => problem('api-server-unhealthy', null, text);
