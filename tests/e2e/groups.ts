/** A set of upstream's specs that is run and reported together. */
export interface Group {
  readonly name: string;
  readonly title: string;
  /** A regular expression for whole spec names, for ginkgo's --focus. */
  readonly focus: string;
  readonly skip: string;
  readonly nodes: number;
  /** The number of zones that the nodes are spread over, by their label. None if omitted. */
  readonly zones?: number;
  /** Whether the specs themselves, which run in the machine's own namespace, connect to Services. */
  readonly hostAccess?: boolean;
  /** A subset of a few minutes for CI. */
  readonly quick?: boolean;
  /** On real kubelets and a real control plane, by `./test real`; the agents are a DaemonSet. */
  readonly real?: boolean;
}

/**
 * Specs that upstream's default jobs exclude: features that are off by default, specs that need the cluster
 * to themselves.
 */
const NOT_DEFAULT = '\\[Feature:|\\[Serial\\]|\\[Disruptive\\]|\\[Slow\\]|\\[Flaky\\]';

export const GROUPS: readonly Group[] = [
  {
    name: 'network',
    title: '[sig-network], the default specs',
    focus: '\\[sig-network\\]',
    skip: NOT_DEFAULT,
    nodes: 3,
    zones: 3,
  },
  {
    name: 'dual-stack',
    title: 'IPv4 and IPv6 on one Service ([Feature:IPv6DualStack])',
    focus: '\\[Feature:IPv6DualStack\\]',
    skip: '\\[Serial\\]|\\[Disruptive\\]|\\[Flaky\\]',
    nodes: 3,
  },
  {
    name: 'load-balancer',
    title: 'Services of type LoadBalancer ([Feature:LoadBalancer])',
    focus: '\\[Feature:LoadBalancer\\]',
    skip: '\\[Disruptive\\]|\\[Serial\\]|\\[Flaky\\]',
    nodes: 3,
    hostAccess: true,
  },
  {
    name: 'network-policy',
    title: 'NetworkPolicy ([Feature:NetworkPolicy])',
    focus: '\\[sig-network\\] Netpol',
    skip: '\\[Disruptive\\]|\\[Flaky\\]',
    nodes: 3,
  },
  {
    name: 'topology',
    title: 'traffic distribution and topology hints',
    focus: 'Traffic Distribution|Topology Hints',
    skip: '\\[Disruptive\\]|\\[Flaky\\]',
    nodes: 6,
    zones: 3,
  },
  {
    name: 'conformance',
    title: '[Conformance], all that is not [sig-network]',
    focus: '\\[Conformance\\]',
    skip: '\\[sig-network\\]',
    nodes: 3,
  },
  {
    name: 'api',
    title:
      '[sig-api-machinery], [sig-apps], [sig-auth], [sig-cli], [sig-instrumentation]: the other default specs',
    focus: '\\[sig-(api-machinery|apps|auth|cli|instrumentation)\\]',
    skip: `${NOT_DEFAULT}|\\[Conformance\\]`,
    nodes: 3,
  },
  {
    name: 'node',
    title: '[sig-node]: the other default specs, without resizes of pods and dynamic resource allocation',
    focus: '\\[sig-node\\]',
    // A resize waits for minutes for the limits of cgroup v2, which few machines of the kind have that runs the specs.
    skip: `${NOT_DEFAULT}|\\[Conformance\\]|InPlace Resize|\\[DRA\\]|\\[Alpha\\]|\\[Beta\\]`,
    nodes: 3,
  },
  {
    name: 'real-network',
    title: '[sig-network] on real kubelets and containerd, the default specs',
    focus: '\\[sig-network\\]',
    skip: NOT_DEFAULT,
    nodes: 3,
    zones: 3,
    real: true,
  },
  {
    name: 'quick',
    title: 'one spec for each kind of Service, as CI runs them',
    focus:
      'Services should (serve a basic endpoint from pods|be able to create a functioning NodePort|be able to change the type from ExternalName to ClusterIP|have session affinity work for service with type clusterIP)|DNS should provide DNS for services|EndpointSlice should create Endpoints and EndpointSlices',
    skip: NOT_DEFAULT,
    nodes: 2,
    quick: true,
  },
];

/** Returns true for a spec that a complete run of the group runs. */
export function isOfGroup({ focus, skip }: Group, spec: string): boolean {
  return new RegExp(focus).test(spec) && !new RegExp(skip).test(spec);
}

/** Finds a group by name. Throws with the known names if there is none. */
export function groupNamed(name: string): Group {
  const group = GROUPS.find((one) => one.name === name);
  if (!group) throw new Error(`unknown group ${name}; known: ${GROUPS.map((one) => one.name).join(', ')}`);
  return group;
}
