import { parseQuantity } from '../kube/quantity.ts';
import { hasLabels, matchesExpression, selects } from '../kube/selector.ts';
import type { LabelSelector, Node, NodeSelectorTerm, Pod, PodAffinityTerm } from '../kube/types.ts';
import { UNSCHEDULABLE_TAINT } from '../kube/well-known-labels.ts';
import { ownMember } from '../lib/own-member.ts';
import { isFinished } from './pods.ts';
import { nodeTaints, untolerated } from './taints.ts';

/** A node with the pods that are bound or assigned to it. */
export interface NodeLoad {
  readonly node: Node;
  readonly pods: readonly Pod[];
}

export type Selection =
  | { readonly node: string }
  /** Why nodes were rejected: upstream's words, with the number of nodes for each. */
  | { readonly node: null; readonly reasons: ReadonlyMap<string, number> };

/**
 * Selects the node for a pod: of those that fit, the best by preferred affinities, spread and load; `random` decides
 * between equally good ones. Otherwise pure.
 */
export function selectNode(
  pod: Pod,
  nodes: readonly NodeLoad[],
  random: () => number,
  refuse: NodeRefusal = () => null,
): Selection {
  const reasons = new Map<string, number>();
  const fitting: NodeLoad[] = [];
  const spread = spreadCounts(pod, nodes);
  for (const load of nodes) {
    const found = refusals(pod, load, nodes, refuse, spread);
    if (found.length === 0) fitting.push(load);
    for (const reason of found) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  let best: string | null = null;
  let bestScore = Number.NEGATIVE_INFINITY;
  let ties = 0;
  for (const load of fitting) {
    const value = score(pod, load, nodes, spread);
    if (value > bestScore) {
      bestScore = value;
      best = nameOf(load.node);
      ties = 1;
    } else if (value === bestScore && random() < 1 / ++ties) best = nameOf(load.node);
  }
  return best === null ? { node: null, reasons } : { node: best };
}

/** Formats "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable." */
export function failureMessage(count: number, reasons: ReadonlyMap<string, number>): string {
  const list = [...reasons].map(([reason, times]) => `${times} ${reason}`).sort();
  return `0/${count} nodes are available${list.length > 0 ? `: ${list.join(', ')}` : ''}.`;
}

function nameOf(node: Node): string {
  return node.metadata?.name ?? '';
}

/** Returns why the node cannot run the pod for other reasons (its volumes); null if it can. */
export type NodeRefusal = (load: NodeLoad) => string | null;

/** Returns why the node cannot run the pod: the reasons of the first failed check; empty if it can. */
function refusals(
  pod: Pod,
  load: NodeLoad,
  nodes: readonly NodeLoad[],
  refuse: NodeRefusal,
  spread: readonly Spread[],
): string[] {
  const first = nodeRefusal(pod, load.node) ?? portRefusal(pod, load);
  if (first !== null) return [first];
  const missing = resourceRefusals(pod, load);
  if (missing.length > 0) return missing;
  const last = refuse(load) ?? spreadRefusal(load, spread) ?? affinityRefusal(pod, load, nodes);
  return last === null ? [] : [last];
}

/** Reports whether the pod fits on this one of the nodes. */
export function fits(
  pod: Pod,
  load: NodeLoad,
  nodes: readonly NodeLoad[],
  refuse: NodeRefusal = () => null,
): boolean {
  return refusals(pod, load, nodes, refuse, spreadCounts(pod, nodes)).length === 0;
}

/** Checks only the node's labels and taints. DaemonSets need only this check, in addition to their own. */
export function nodeRefusal(pod: Pod, node: Node): string | null {
  const taint = untolerated(nodeTaints(node), pod.spec?.tolerations ?? [], ['NoSchedule', 'NoExecute']);
  if (taint?.key === UNSCHEDULABLE_TAINT) return 'node(s) were unschedulable';
  if (taint) return `node(s) had untolerated taint {${taint.key}: ${taint.value ?? ''}}`;
  return matchesNode(pod, node) ? null : "node(s) didn't match Pod's node affinity/selector";
}

/** Evaluates nodeSelector and required node affinity. */
export function matchesNode(pod: Pod, node: Node): boolean {
  if (!hasLabels(pod.spec?.nodeSelector ?? {}, node.metadata?.labels)) return false;
  const required = pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  return !required || required.nodeSelectorTerms.some((term) => matchesTerm(term, node));
}

/** Evaluates one term of a node selector. */
export function matchesTerm(term: NodeSelectorTerm, node: Node): boolean {
  const { matchExpressions = [], matchFields = [] } = term;
  // A term without requirements matches nothing (core/v1).
  if (matchExpressions.length + matchFields.length === 0) return false;
  return (
    matchExpressions.every(({ key, operator, values = [] }) =>
      matchesExpression(operator, ownMember(node.metadata?.labels, key), values),
    ) &&
    matchFields.every(
      ({ key, operator, values = [] }) =>
        key === 'metadata.name' && matchesExpression(operator, nameOf(node), values),
    )
  );
}

interface HostPort {
  readonly ip: string;
  readonly protocol: string;
  readonly port: number;
}

function hostPorts(pod: Pod): HostPort[] {
  return (pod.spec?.containers ?? []).flatMap(({ ports = [] }) =>
    ports.flatMap(({ hostPort, hostIP, protocol }) =>
      hostPort ? [{ ip: hostIP || '0.0.0.0', protocol: protocol ?? 'TCP', port: hostPort }] : [],
    ),
  );
}

function portRefusal(pod: Pod, { pods }: NodeLoad): string | null {
  const wanted = hostPorts(pod);
  if (wanted.length === 0) return null;
  const any = (ip: string) => ip === '0.0.0.0' || ip === '::';
  const clash = pods.some((other) =>
    hostPorts(other).some((taken) =>
      wanted.some(
        ({ ip, protocol, port }) =>
          port === taken.port && protocol === taken.protocol && (ip === taken.ip || any(ip) || any(taken.ip)),
      ),
    ),
  );
  return clash ? "node(s) didn't have free ports for the requested pod ports" : null;
}

/** Returns a pod's requests: the sum of its containers, or more if an init container needs more. */
export function requestsOf(pod: Pod): Map<string, number> {
  const sum = new Map<string, number>();
  for (const container of pod.spec?.containers ?? []) add(sum, container.resources?.requests);
  let sidecars = new Map<string, number>();
  const peak = new Map<string, number>();
  for (const container of pod.spec?.initContainers ?? []) {
    if (container.restartPolicy === 'Always') {
      add(sum, container.resources?.requests);
      sidecars = new Map(sidecars);
      add(sidecars, container.resources?.requests);
      continue;
    }
    for (const [name, text] of Object.entries(container.resources?.requests ?? {})) {
      peak.set(name, Math.max(peak.get(name) ?? 0, amountOf(text) + (sidecars.get(name) ?? 0)));
    }
  }
  for (const [name, value] of peak) sum.set(name, Math.max(sum.get(name) ?? 0, value));
  // Requests of the pod as a whole replace the sum (KEP-2837).
  for (const [name, text] of Object.entries(pod.spec?.resources?.requests ?? {}))
    sum.set(name, amountOf(text));
  add(sum, pod.spec?.overhead);
  return sum;
}

/** A missing or invalid quantity requests nothing. */
const amountOf = (quantity: string | undefined): number => parseQuantity(quantity ?? '') || 0;

function add(sum: Map<string, number>, amounts: Readonly<Record<string, string>> | undefined): void {
  for (const [name, text] of Object.entries(amounts ?? {})) {
    sum.set(name, (sum.get(name) ?? 0) + amountOf(text));
  }
}

function resourceRefusals(pod: Pod, { node, pods }: NodeLoad): string[] {
  const allocatable = node.status?.allocatable ?? node.status?.capacity;
  // A node without allocatable resources is not limited.
  if (!allocatable) return [];
  const reasons: string[] = [];
  const limit = allocatable['pods'];
  if (limit !== undefined && pods.length + 1 > amountOf(limit)) reasons.push('Too many pods');
  const wanted = requestsOf(pod);
  if (wanted.size === 0) return reasons;
  const used = new Map<string, number>();
  for (const other of pods)
    for (const [name, value] of requestsOf(other)) used.set(name, (used.get(name) ?? 0) + value);
  for (const [name, value] of wanted) {
    // A tolerance of one thousandth for the rounding of decimal fractions.
    if (value > 0 && (used.get(name) ?? 0) + value > amountOf(ownMember(allocatable, name)) * (1 + 1e-9)) {
      reasons.push(`Insufficient ${name}`);
    }
  }
  return reasons;
}

/** Returns the nodes with the same value of a label as this one. */
function domain(key: string, node: Node, nodes: readonly NodeLoad[]): readonly NodeLoad[] {
  const value = ownMember(node.metadata?.labels, key);
  return value === undefined
    ? []
    : nodes.filter((other) => ownMember(other.node.metadata?.labels, key) === value);
}

const isAll = (selector: LabelSelector | undefined) =>
  selector !== undefined &&
  Object.keys(selector.matchLabels ?? {}).length + (selector.matchExpressions ?? []).length === 0;

/**
 * Returns the pod with the namespaceSelectors of its affinity terms replaced by the names of the selected namespaces,
 * and matchLabelKeys by their values (KEP-3633). Pods without such terms are returned unchanged.
 */
export function withNamespaces(
  pod: Pod,
  namespaces: () => Iterable<{
    readonly metadata?: { readonly name?: string; readonly labels?: Record<string, string> };
  }>,
): Pod {
  const resolve = (term: PodAffinityTerm): PodAffinityTerm => {
    const { namespaceSelector, matchLabelKeys = [], mismatchLabelKeys = [], ...rest } = term;
    const expressions = (keys: readonly string[], operator: string) =>
      keys.flatMap((key) => {
        const value = ownMember(pod.metadata?.labels, key);
        return value === undefined ? [] : [{ key, operator, values: [value] }];
      });
    const more = [...expressions(matchLabelKeys, 'In'), ...expressions(mismatchLabelKeys, 'NotIn')];
    const labelSelector =
      term.labelSelector && more.length > 0
        ? {
            ...term.labelSelector,
            matchExpressions: [...(term.labelSelector.matchExpressions ?? []), ...more],
          }
        : term.labelSelector;
    const selected = labelSelector ? { ...rest, labelSelector } : rest;
    if (!namespaceSelector) return selected;
    if (isAll(namespaceSelector)) return { ...selected, namespaceSelector };
    const names = [...namespaces()].flatMap(({ metadata }) =>
      selects(namespaceSelector, metadata?.labels) ? [metadata?.name ?? ''] : [],
    );
    // If none is selected, no pod matches: no namespace has an empty name.
    return { ...selected, namespaces: [...(term.namespaces ?? []), ...names, ''] };
  };
  const needsIt = (term: PodAffinityTerm) =>
    term.namespaceSelector || term.matchLabelKeys?.length || term.mismatchLabelKeys?.length;
  const { podAffinity, podAntiAffinity } = pod.spec?.affinity ?? {};
  const termsOf = (affinity: typeof podAffinity) => [
    ...(affinity?.requiredDuringSchedulingIgnoredDuringExecution ?? []),
    ...(affinity?.preferredDuringSchedulingIgnoredDuringExecution ?? []).map((one) => one.podAffinityTerm),
  ];
  if (!pod.spec || ![...termsOf(podAffinity), ...termsOf(podAntiAffinity)].some(needsIt)) return pod;
  const changed = (affinity: NonNullable<typeof podAffinity>) => ({
    requiredDuringSchedulingIgnoredDuringExecution: (
      affinity.requiredDuringSchedulingIgnoredDuringExecution ?? []
    ).map(resolve),
    preferredDuringSchedulingIgnoredDuringExecution: (
      affinity.preferredDuringSchedulingIgnoredDuringExecution ?? []
    ).map((one) => ({ ...one, podAffinityTerm: resolve(one.podAffinityTerm) })),
  });
  const affinity = {
    ...pod.spec.affinity,
    ...(podAffinity ? { podAffinity: changed(podAffinity) } : {}),
    ...(podAntiAffinity ? { podAntiAffinity: changed(podAntiAffinity) } : {}),
  };
  return { ...pod, spec: { ...pod.spec, affinity } };
}

/** Reports whether a term of `pod` applies to `other`. */
function isMeant(term: PodAffinityTerm, pod: Pod, other: Pod): boolean {
  const namespaces = term.namespaces ?? [];
  const namespace = other.metadata?.namespace ?? '';
  // A namespaceSelector remains here only if empty: `withNamespaces` has resolved the others.
  const everywhere = term.namespaceSelector !== undefined;
  const inScope =
    everywhere ||
    (namespaces.length > 0 ? namespaces.includes(namespace) : namespace === pod.metadata?.namespace);
  return inScope && selects(term.labelSelector, other.metadata?.labels);
}

function affinityRefusal(pod: Pod, { node }: NodeLoad, nodes: readonly NodeLoad[]): string | null {
  const affinity = pod.spec?.affinity;
  for (const term of affinity?.podAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? []) {
    const here = domain(term.topologyKey, node, nodes);
    if (here.some(({ pods }) => pods.some((other) => isMeant(term, pod, other)))) continue;
    // The first pod of a group with mutual affinity may be placed anywhere.
    const first =
      isMeant(term, pod, pod) && !nodes.some(({ pods }) => pods.some((other) => isMeant(term, pod, other)));
    if (!first || here.length === 0) return "node(s) didn't match pod affinity rules";
  }
  for (const term of affinity?.podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? []) {
    const here = domain(term.topologyKey, node, nodes);
    if (here.some(({ pods }) => pods.some((other) => isMeant(term, pod, other)))) {
      return "node(s) didn't match pod anti-affinity rules";
    }
  }
  for (const load of nodes) {
    for (const other of load.pods) {
      const terms =
        other.spec?.affinity?.podAntiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
      for (const term of terms) {
        const theirs = ownMember(load.node.metadata?.labels, term.topologyKey);
        if (theirs === undefined || theirs !== ownMember(node.metadata?.labels, term.topologyKey)) continue;
        if (isMeant(term, other, pod)) return "node(s) didn't satisfy existing pods anti-affinity rules";
      }
    }
  }
  return null;
}

interface Spread {
  readonly key: string;
  readonly maxSkew: number;
  readonly hard: boolean;
  readonly counts: ReadonlyMap<string, number>;
  readonly least: number;
  /** 1 if the pod itself matches the constraint. */
  readonly own: number;
}

/** Returns the current number of pods in each domain, for each of the pod's spread constraints. */
function spreadCounts(pod: Pod, nodes: readonly NodeLoad[]): Spread[] {
  return (pod.spec?.topologySpreadConstraints ?? []).map((constraint) => {
    const counts = new Map<string, number>();
    const selector = withKeys(constraint.labelSelector, constraint.matchLabelKeys ?? [], pod);
    for (const { node, pods } of nodes) {
      const value = ownMember(node.metadata?.labels, constraint.topologyKey);
      if (value === undefined) continue;
      if (constraint.nodeAffinityPolicy !== 'Ignore' && !matchesNode(pod, node)) continue;
      if (constraint.nodeTaintsPolicy === 'Honor' && nodeRefusal(pod, node)) continue;
      const matching = pods.filter(
        (other) =>
          other.metadata?.namespace === pod.metadata?.namespace &&
          other.metadata?.deletionTimestamp === undefined &&
          selects(selector, other.metadata?.labels),
      );
      counts.set(value, (counts.get(value) ?? 0) + matching.length);
    }
    const least = counts.size < (constraint.minDomains ?? 1) ? 0 : Math.min(...counts.values());
    return {
      key: constraint.topologyKey,
      maxSkew: constraint.maxSkew,
      hard: constraint.whenUnsatisfiable === 'DoNotSchedule',
      counts,
      least: Number.isFinite(least) ? least : 0,
      own: selects(selector, pod.metadata?.labels) ? 1 : 0,
    };
  });
}

function withKeys(selector: LabelSelector | undefined, keys: readonly string[], pod: Pod): LabelSelector {
  const pairs = keys.flatMap((key) => {
    const value = ownMember(pod.metadata?.labels, key);
    return value === undefined ? [] : [[key, value] as const];
  });
  return { ...selector, matchLabels: { ...selector?.matchLabels, ...Object.fromEntries(pairs) } };
}

function spreadRefusal({ node }: NodeLoad, spreads: readonly Spread[]): string | null {
  for (const { key, maxSkew, hard, counts, least, own } of spreads) {
    if (!hard) continue;
    const value = ownMember(node.metadata?.labels, key);
    if (value === undefined)
      return "node(s) didn't match pod topology spread constraints (missing required label)";
    if ((counts.get(value) ?? 0) + own - least > maxSkew) {
      return "node(s) didn't match pod topology spread constraints";
    }
  }
  return null;
}

/** Preferred affinities have the most weight, then soft spread, then siblings on the node, then its number of pods. */
function score(pod: Pod, load: NodeLoad, nodes: readonly NodeLoad[], spreads: readonly Spread[]): number {
  let value = 0;
  const { node, pods } = load;
  const affinity = pod.spec?.affinity;
  for (const { weight, preference } of affinity?.nodeAffinity
    ?.preferredDuringSchedulingIgnoredDuringExecution ?? []) {
    if (matchesTerm(preference, node)) value += weight * 1000;
  }
  const near = (terms: readonly { weight: number; podAffinityTerm: PodAffinityTerm }[], sign: number) => {
    for (const { weight, podAffinityTerm: term } of terms) {
      for (const { pods: theirs } of domain(term.topologyKey, node, nodes)) {
        for (const other of theirs) if (isMeant(term, pod, other)) value += sign * weight * 1000;
      }
    }
  };
  near(affinity?.podAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [], 1);
  near(affinity?.podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [], -1);
  for (const { key, hard, counts } of spreads) {
    const domainCount = counts.get(ownMember(node.metadata?.labels, key) ?? '');
    value -= (domainCount ?? (hard ? 0 : 1000)) * 500;
  }
  if (untolerated(nodeTaints(node), pod.spec?.tolerations ?? [], ['PreferNoSchedule'])) value -= 10_000;
  const owner = pod.metadata?.ownerReferences?.find(({ controller }) => controller)?.uid;
  if (owner) {
    const siblings = pods.filter(({ metadata }) =>
      metadata?.ownerReferences?.some(({ uid }) => uid === owner),
    );
    value -= siblings.length * 100;
  }
  return value - pods.filter((other) => !isFinished(other)).length;
}
