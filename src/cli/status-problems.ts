import { addressProblems } from '../cluster/announced-addresses.ts';
import type { EgressReport } from '../cluster/egress.ts';
import { podProblem } from '../cluster/readiness.ts';
import { type ClusterState, clusterPaths } from '../cluster/state.ts';
import type { EgressGatewayObject } from '../kube/egress-gateway.ts';
import type { EndpointSlice, Event, Lease, Node, Pod, Service } from '../kube/types.ts';
import { FAMILY_NAMES } from '../lib/address.ts';
import { type Problem, problem } from './problem.ts';

/*
 * The problems that `status` lists: each names the object and the cause, then the fix, or the command that shows more.
 */

/** The supervisor cannot write its record. */
export const recordNotWritable = (cause: string, state: Pick<ClusterState, 'name'>): Problem =>
  problem(
    'record-not-writable',
    null,
    `the supervisor cannot record the processes, and continues without its file: ${cause}; make it writable: ${clusterPaths(state.name).processes}`,
  );

/** Describes the problems of a node; `node` undefined: it has not registered. */
export function nodeProblems(
  name: string,
  node: Node | undefined,
  state: Pick<ClusterState, 'name'>,
): Problem[] {
  const object = `Node ${name}`;
  const seeLog = `see its log: ${clusterPaths(state.name).log(name)}`;
  const condition = (type: string) => node?.status?.conditions?.find((one) => one.type === type);
  const ready = condition('Ready');
  const network = condition('NetworkUnavailable');
  return [
    ...(ready?.status === 'True'
      ? []
      : [
          problem(
            'node-not-ready',
            object,
            `${name}: not ready: ${ready?.message ?? 'it has not reported'}; ${seeLog}`,
          ),
        ]),
    ...(network?.status === 'True'
      ? [
          problem(
            'node-network',
            object,
            `${name}: network: ${network.message}; remove the cause, its agent tries again; ${seeLog}`,
          ),
        ]
      : []),
  ];
}

/** Describes the problems of an EgressGateway, by its conditions. */
export function gatewayProblems({ metadata, status }: EgressGatewayObject): Problem[] {
  const object = `EgressGateway ${metadata?.name ?? ''}`;
  const conditions = status?.conditions ?? [];
  if (conditions.length === 0)
    return [
      problem('egress-gateway', object, `${object}: no agent has reported on it; see: fairlead logs NODE`),
    ];
  const accepted = conditions.find(({ type }) => type === 'Accepted');
  const ready = conditions.find(({ type }) => type === 'Ready');
  const bad = [accepted, ready].find((one) => one?.status === 'False');
  if (!bad) return [];
  const field = bad === accepted ? null : 'spec.nodeSelector';
  return [problem('egress-gateway', object, `${object}: ${bad.message}`, field)];
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
): Problem[] {
  const { name = '', namespace = '' } = service.metadata ?? {};
  const title = `Service ${namespace}/${name}`;
  const problems: Problem[] = [];
  const { selector } = service.spec ?? {};
  const isReady = slices.some((slice) =>
    (slice.endpoints ?? []).some(({ conditions }) => conditions?.ready !== false),
  );
  if (selector && !isReady) {
    const labels = Object.entries(selector).map(([key, value]) => `${key}=${value}`);
    const isSelected = ({ metadata }: Pod) =>
      metadata?.namespace === namespace &&
      Object.entries(selector).every(([key, value]) => metadata.labels?.[key] === value);
    const isSelecting = pods.some(isSelected);
    const fix = isSelecting
      ? `see: kubectl -n ${namespace} get pods -l ${labels.join(',')}`
      : `no pod has the labels ${labels.join(', ')}: create one, or correct the selector`;
    problems.push(
      problem(
        'service-without-endpoints',
        title,
        `${title}: no ready endpoint; ${fix}`,
        isSelecting ? null : 'spec.selector',
      ),
    );
  }
  for (const text of addressProblems(service, leases))
    problems.push(
      problem(
        'load-balancer-address',
        title,
        `${title}: ${text}; see: kubectl -n ${namespace} describe service ${name}`,
      ),
    );
  return problems;
}

/**
 * Describes why a pod is not ready; null: it is, or it has ended or is being deleted. `probes`: the last event of a failed probe, by
 * the UID of the pod.
 */
export function podNotReady(pod: Pod, probes: ReadonlyMap<string, string> = new Map()): Problem | null {
  if (pod.status?.phase === 'Succeeded' || pod.metadata?.deletionTimestamp) return null;
  const cause = podProblem(pod);
  if (cause === 'ready') return null;
  const { namespace, name, uid = '' } = pod.metadata ?? {};
  const object = `Pod ${namespace}/${name}`;
  const probe = probes.get(uid);
  // Its phase says only that it runs.
  const why = probe !== undefined && cause === 'Running' ? `not ready: ${probe}` : cause;
  const message = `${object}: ${why}; see: kubectl -n ${namespace} describe pod ${name}`;
  return problem('pod-not-ready', object, message);
}

/** Returns the message of the newest event of a failed probe, by the UID of its pod. */
export function failedProbes(events: readonly Event[]): ReadonlyMap<string, string> {
  const timeOf = ({ lastTimestamp, eventTime }: Event) => lastTimestamp ?? eventTime ?? '';
  const sorted = events
    .filter(({ reason }) => reason === 'Unhealthy')
    .toSorted((a, b) => (timeOf(a) < timeOf(b) ? -1 : 1));
  return new Map(sorted.map(({ involvedObject, message }) => [involvedObject.uid ?? '', message ?? '']));
}

/** A fault that a user has planted. */
export const faultProblem = ({ kind, target }: { readonly kind: string; readonly target: string }): Problem =>
  problem('fault-planted', target, `a fault is planted: ${kind} ${target}; undo it: fairlead fault undo`);

/** A published port that is closed. */
export const portProblem = (localPort: number, cause: string): Problem =>
  problem(
    'port-closed',
    `published port ${localPort}`,
    `published port ${localPort} is closed: ${cause}; stop the program that uses it, or publish another port: fairlead up --publish`,
  );

/** Describes the families over which pods do not reach external networks, and why names are not resolved. */
export function egressProblems(egress: readonly EgressReport[], nameProblem: string | null): Problem[] {
  return [
    ...egress.flatMap(({ family, problem: cause }) =>
      cause === null
        ? []
        : [
            problem(
              'egress-closed',
              null,
              `egress: pods do not reach external networks over ${FAMILY_NAMES[family]}: ${cause}`,
            ),
          ],
    ),
    ...(nameProblem === null
      ? []
      : [problem('names-unresolved', null, `egress: pods do not resolve external names: ${nameProblem}`)]),
  ];
}
