import type { Mode } from '../dataplane/dataplane.ts';
import { type DifferenceId, MODE_DIFFERENCES } from '../dataplane/mode-differences.ts';
import { hostPort, type SocketAddress } from '../lib/address.ts';
import type { Frontend, NodeView, ServiceMap } from '../service/model.ts';
import { renderEbpf } from './ebpf.ts';
import { renderIptables } from './iptables.ts';
import { renderIpvs } from './ipvs.ts';
import { renderKubeProxyRules } from './kube-proxy-rules.ts';
import { renderNftables } from './nftables.ts';
import {
  type Lookups,
  mainFrontend,
  type ObjectSection,
  type RenderInput,
  type Rendering,
} from './rendering.ts';
import { renderUserspace } from './userspace.ts';

/** The first of many objects; the others are only counted. */
const SHOWN_LINES = 200;

/** Objects of one kind; `lines`: the first SHOWN_LINES of `count`, as the command prints them. */
export interface ModeSection {
  readonly kind: string;
  readonly command: string;
  readonly count: number;
  readonly lines: readonly string[];
  readonly isShared: boolean;
}

/** A Service as one mode implements it. */
export interface ModeFacts {
  readonly mode: Mode;
  readonly isInUse: boolean;
  /** Why this node cannot run the mode; null: it can. */
  readonly unavailable: { readonly reason: string; readonly fix: string | null } | null;
  readonly sections: readonly ModeSection[];
  /** The Service's own objects by kind. */
  readonly counts: readonly { readonly kind: string; readonly count: number }[];
  readonly sizes: Rendering['sizes'];
  readonly translatedAt: string;
  readonly firstPacket: Lookups;
  readonly laterPackets: string;
  /** How clients and servers of this Service notice the mode. */
  readonly differences: readonly string[];
  readonly notes: readonly string[];
  /** What kube-proxy would write in its mode of this name, for comparison; empty: not rendered; absent: an older agent. */
  readonly kubeProxy?: readonly ModeSection[];
  /** Objects of all Services in which the kernel differs from the rendered ones; null: not compared, the mode is not in use. */
  readonly drifts: readonly string[] | null;
}

/** One Service in every mode, on one node. */
export interface ModeComparison {
  /** "namespace/name" */
  readonly service: string;
  readonly node: string;
  readonly mode: Mode;
  /** "10.96.0.10:80/TCP", "node port 30080/TCP". */
  readonly frontends: readonly string[];
  /** The number of distinct endpoints. */
  readonly endpoints: number;
  readonly modes: readonly ModeFacts[];
}

export interface CompareOptions {
  readonly map: ServiceMap;
  readonly namespace: string;
  readonly name: string;
  readonly inUse: Mode;
  readonly nodeIn: (mode: Mode) => NodeView;
  readonly listenerOf: (pool: string) => SocketAddress | null;
  readonly unavailable: ReadonlyMap<Mode, { readonly reason: string; readonly fix: string | null }>;
  /** Of the mode in use. */
  readonly drifts: readonly string[];
}

const RENDERERS: Readonly<Record<Mode, (input: RenderInput) => Rendering>> = {
  nftables: renderNftables,
  ebpf: renderEbpf,
  iptables: renderIptables,
  ipvs: renderIpvs,
  userspace: renderUserspace,
};

/** Renders a Service in all modes from the node's forwarding table. Null: the table has no address of this Service. */
export function compareModes(options: CompareOptions): ModeComparison | null {
  const { map, namespace, name, inUse } = options;
  const frontends = [...map.frontends.values()].filter(
    ({ owner }) => owner.namespace === namespace && owner.name === name,
  );
  if (frontends.length === 0) return null;
  return {
    service: `${namespace}/${name}`,
    node: map.node.name,
    mode: inUse,
    frontends: frontends.map(frontendText),
    endpoints: new Set(frontends.flatMap(endpointsOf)).size,
    modes: (Object.keys(RENDERERS) as Mode[]).map((mode) => factsOf(mode, frontends, options)),
  };
}

function factsOf(mode: Mode, frontends: readonly Frontend[], options: CompareOptions): ModeFacts {
  const { map, inUse, listenerOf } = options;
  const node = options.nodeIn(mode);
  const isInUse = mode === inUse;
  const input = { map, node, frontends, listenerOf: isInUse ? listenerOf : () => null };
  const { sections, ...rendering } = RENDERERS[mode](input);
  const isRefused = mainFrontend(frontends)?.routes.pod.action !== 'forward';
  const counts = new Map<string, number>();
  for (const { kind, lines, isShared } of sections)
    if (!isShared) counts.set(kind, (counts.get(kind) ?? 0) + lines.length);
  return {
    mode,
    isInUse,
    unavailable: options.unavailable.get(mode) ?? null,
    ...rendering,
    ...(isRefused ? { translatedAt: 'nowhere: the packet is refused or dropped', laterPackets: 'none' } : {}),
    sections: sections.map(bounded),
    kubeProxy: mode === 'iptables' ? renderKubeProxyRules(input).map(bounded) : [],
    counts: [...counts].map(([kind, count]) => ({ kind, count })),
    differences: differencesFor(mode, frontends),
    drifts: isInUse ? options.drifts : null,
  };
}

const bounded = (one: ObjectSection): ModeSection => ({
  ...one,
  count: one.lines.length,
  lines: one.lines.slice(0, SHOWN_LINES),
});

/** Whether clients or servers of a Service with these frontends can notice a difference. */
const CONCERNS: Readonly<Record<DifferenceId, (frontends: readonly Frontend[]) => boolean>> = {
  'server-sees-node': () => true,
  'other-nodes-pods-are-outside': (frontends) => frontends.some(({ kind }) => kind !== 'ClusterIP'),
  'hairpin-keeps-source': () => true,
  'no-sctp': (frontends) => frontends.some(({ protocol }) => protocol === 'SCTP'),
  'node-ports-on-primary-addresses': (frontends) => frontends.some(({ kind }) => kind === 'NodePort'),
};

const differencesFor = (mode: Mode, frontends: readonly Frontend[]): string[] =>
  MODE_DIFFERENCES.filter(({ id, modes }) => modes.includes(mode) && CONCERNS[id](frontends)).map(
    ({ text }) => text,
  );

const frontendText = ({ address, port, protocol }: Frontend): string =>
  `${address === null ? `node port ${port}` : hostPort({ ip: address, port })}/${protocol}`;

const endpointsOf = ({ routes }: Frontend): string[] =>
  Object.values(routes).flatMap((route) =>
    route.action === 'forward' ? route.pool.endpoints.map(hostPort) : [],
  );
