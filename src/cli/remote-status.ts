import type { AgentReport, RemoteCluster } from '../cluster/remote-cluster.ts';
import type { Client } from '../kube/client.ts';
import { ANNOUNCEMENT_LABEL } from '../kube/load-balancer.ts';
import { type EndpointSlice, type Node, RESOURCES } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import type { Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import { type Problem, problem } from './problem.ts';
import { sizeProblems } from './size-problems.ts';
import { serviceProblems } from './status-problems.ts';
import { formatTable } from './table.ts';
import { paint } from './terminal.ts';

/** The text of `status` for a cluster whose agents run in pods. */
export interface RemoteStatus {
  readonly context: string;
  readonly nodes: readonly {
    readonly name: string;
    readonly addresses: readonly string[];
    readonly ready: boolean;
    /** Null: its agent does not answer, or there is none. */
    readonly agent: AgentReport['state'];
  }[];
  readonly services: number;
  readonly problems: readonly Problem[];
}

/** More problems are only counted in the text. */
const MAX_PROBLEMS = 20;

/** Asks the API server and all agents. Throws the errors of the API server. */
export async function remoteStatus(cluster: RemoteCluster): Promise<RemoteStatus> {
  const { client, agents } = cluster;
  const [reports, nodes, objects] = await Promise.all([
    cluster.reports(),
    client.list(RESOURCES.nodes),
    listServices(client),
  ]);
  const problems: Problem[] = [];
  const rows = nodes.items.map((node) => {
    const name = node.metadata?.name ?? '';
    const report = reports.find((one) => one.node === name);
    const isReady = node.status?.conditions?.some(
      ({ type, status }) => type === 'Ready' && status === 'True',
    );
    problems.push(...nodeProblems(node, report, isReady === true));
    return {
      name,
      addresses: (node.status?.addresses ?? []).flatMap(({ type, address }) =>
        type === 'InternalIP' && address ? address : [],
      ),
      ready: isReady === true,
      agent: report?.state ?? null,
    };
  });
  problems.push(...sizeProblems(reports.map(({ node, state }) => ({ node, links: state?.links ?? [] }))));
  // All agents find the same in the same objects.
  const found = reports.find(({ state }) => state !== null)?.state?.findings ?? [];
  problems.push(...found.map(findingProblem));
  for (const service of objects.services) {
    const { name, namespace } = service.metadata ?? {};
    problems.push(
      ...serviceProblems(service, { ...objects, slices: objects.slices.get(`${namespace}/${name}`) ?? [] }),
    );
  }
  if (agents.length < nodes.items.length && reports.every(({ state }) => state === null))
    problems.push(problem('agent-silent', null, 'no agent answers: see docs/remote-commands.md'));
  return { context: cluster.context, nodes: rows, services: objects.services.length, problems };
}

/** Renders the answer for people: a table of nodes, then the verdict with the problems. */
export function remoteStatusText(status: RemoteStatus, now: number, output: Output): string {
  const { columns } = output;
  const rows = status.nodes.map(({ name, agent, ready, addresses }) => [
    name,
    agent?.mode ?? '-',
    `${ready ? 'Ready' : 'NotReady'}${agent === null ? ', no answer' : agent.healthy ? '' : ', unhealthy'}`,
    agent === null ? '-' : String(agent.frontends),
    agent?.lastProgrammed ? ageText(now - Date.parse(agent.lastProgrammed)) : '-',
    agent?.version ?? '-',
    addresses.join(' '),
  ]);
  const heading = ['NODE', 'MODE', 'STATUS', 'FRONTENDS', 'PROGRAMMED', 'VERSION', 'ADDRESSES'];
  const { problems } = status;
  const shown = problems.slice(0, MAX_PROBLEMS).map(({ message }) => `  ${message}\n`);
  const more = problems.length > MAX_PROBLEMS ? `  ${problems.length - MAX_PROBLEMS} more: -o json\n` : '';
  return [
    `context ${status.context}: ${counted(status.nodes.length, 'node')}, ${counted(status.services, 'Service')}\n`,
    formatTable([heading, ...rows], columns, ['VERSION', 'PROGRAMMED', 'ADDRESSES']),
    problems.length === 0
      ? `${paint(output, 'good', 'everything is healthy')}\n`
      : `${paint(output, 'bad', 'unhealthy')}:\n${wrapLines(`${shown.join('')}${more}`, columns)}`,
  ].join('\n');
}

function nodeProblems(node: Node, report: AgentReport | undefined, isReady: boolean): Problem[] {
  const name = node.metadata?.name ?? '';
  const object = `Node ${name}`;
  const ready = node.status?.conditions?.find(({ type }) => type === 'Ready');
  const { state, problem: silent } = report ?? {};
  return [
    ...(isReady
      ? []
      : [
          problem(
            'node-not-ready',
            object,
            `${name}: not ready: ${ready?.message ?? 'it has not reported'}; see: kubectl describe node ${name}`,
          ),
        ]),
    ...(report === undefined
      ? [problem('agent-missing', object, `${name}: no agent runs on this node`)]
      : []),
    ...(silent ? [problem('agent-silent', object, `${name}: ${silent}`)] : []),
    ...(state && !state.healthy
      ? [
          problem(
            'agent-unhealthy',
            object,
            `${name}: the agent is unhealthy: ${state.problem ?? 'its changes are not programmed in time'}`,
          ),
        ]
      : []),
  ];
}

/** A finding begins with its field: "spec.ports[0].port: 0 is not a port". */
function findingProblem(finding: unknown): Problem {
  const { object, message } = finding as {
    readonly object?: { readonly kind: string; readonly namespace: string; readonly name: string };
    readonly message?: string;
  };
  const title = `${object?.kind} ${object?.namespace}/${object?.name}`;
  const [, field = null] = /^((?:spec|status|metadata|ports|endpoints)[\w.[\]]*):/.exec(message ?? '') ?? [];
  return problem('service-invalid', title, `${title}: ${message}`, field);
}

async function listServices(client: Client) {
  const [services, slices, pods, leases] = await Promise.all([
    client.list(RESOURCES.services),
    client.list(RESOURCES.endpointSlices),
    client.list(RESOURCES.pods),
    client.list(RESOURCES.leases, { labelSelector: ANNOUNCEMENT_LABEL }),
  ]);
  const byService = new Map<string, EndpointSlice[]>();
  for (const slice of slices.items) {
    const { namespace, labels } = slice.metadata ?? {};
    const key = `${namespace}/${labels?.[SERVICE_NAME_LABEL]}`;
    byService.set(key, [...(byService.get(key) ?? []), slice]);
  }
  return { services: services.items, slices: byService, pods: pods.items, leases: leases.items };
}

const counted = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`;

function ageText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s ago`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}
