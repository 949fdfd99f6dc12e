import { addressProblems } from '../cluster/announced-addresses.ts';
import type { EgressReport } from '../cluster/egress.ts';
import { podProblem } from '../cluster/readiness.ts';
import { type ClusterState, clusterPaths } from '../cluster/state.ts';
import type { EndpointSlice, Lease, Node, Pod, Service } from '../kube/types.ts';
import { FAMILY_NAMES } from '../lib/address.ts';

/*
 * The problems that `status` lists: each names the object and the cause, then the fix, or the command that shows more.
 */

/** The supervisor cannot write its record. */
export const recordProblemText = (problem: string, state: Pick<ClusterState, 'name'>): string =>
  `the supervisor cannot record the processes, and continues without its file: ${problem}; make it writable: ${clusterPaths(state.name).processes}`;

/** Describes the problems of a node; `node` undefined: it has not registered. */
export function nodeProblems(
  name: string,
  node: Node | undefined,
  state: Pick<ClusterState, 'name'>,
): string[] {
  const seeLog = `see its log: ${clusterPaths(state.name).log(name)}`;
  const condition = (type: string) => node?.status?.conditions?.find((one) => one.type === type);
  const ready = condition('Ready');
  const network = condition('NetworkUnavailable');
  return [
    ...(ready?.status === 'True'
      ? []
      : [`${name}: not ready: ${ready?.message ?? 'it has not reported'}; ${seeLog}`]),
    ...(network?.status === 'True'
      ? [`${name}: network: ${network.message}; remove the cause, its agent tries again; ${seeLog}`]
      : []),
  ];
}

/** Describes the problems of a Service: no ready endpoint, or no usable load-balancer address. */
export function serviceProblems(
  service: Service,
  {
    slices,
    pods,
    leases,
  }: {
    readonly slices: readonly EndpointSlice[];
    readonly pods: readonly Pod[];
    readonly leases: readonly Lease[];
  },
): string[] {
  const { name = '', namespace = '' } = service.metadata ?? {};
  const title = `Service ${namespace}/${name}`;
  const problems: string[] = [];
  const { selector } = service.spec ?? {};
  const isReady = slices.some((slice) =>
    (slice.endpoints ?? []).some(({ conditions }) => conditions?.ready !== false),
  );
  if (selector && !isReady) {
    const labels = Object.entries(selector).map(([key, value]) => `${key}=${value}`);
    const isSelected = ({ metadata }: Pod) =>
      metadata?.namespace === namespace &&
      Object.entries(selector).every(([key, value]) => metadata.labels?.[key] === value);
    const fix = pods.some(isSelected)
      ? `see: kubectl -n ${namespace} get pods -l ${labels.join(',')}`
      : `no pod has the labels ${labels.join(', ')}: create one, or correct the selector`;
    problems.push(`${title}: no ready endpoint; ${fix}`);
  }
  for (const text of addressProblems(service, leases))
    problems.push(`${title}: ${text}; see: kubectl -n ${namespace} describe service ${name}`);
  return problems;
}

/** Describes why a pod is not ready; null: it is, or it has ended or is being deleted. */
export function podProblemText(pod: Pod): string | null {
  if (pod.status?.phase === 'Succeeded' || pod.metadata?.deletionTimestamp) return null;
  const problem = podProblem(pod);
  if (problem === 'ready') return null;
  const { namespace, name } = pod.metadata ?? {};
  return `Pod ${namespace}/${name}: ${problem}; see: kubectl -n ${namespace} describe pod ${name}`;
}

/** A published port that is closed. */
export const portProblemText = (localPort: number, problem: string): string =>
  `published port ${localPort} is closed: ${problem}; stop the program that uses it, or publish another port: fairlead up --publish`;

/** Describes the families over which pods do not reach external networks, and why names are not resolved. */
export function egressProblems(egress: readonly EgressReport[], nameProblem: string | null): string[] {
  return [
    ...egress.flatMap(({ family, problem }) =>
      problem === null
        ? []
        : [`egress: pods do not reach external networks over ${FAMILY_NAMES[family]}: ${problem}`],
    ),
    ...(nameProblem === null ? [] : [`egress: pods do not resolve external names: ${nameProblem}`]),
  ];
}
