import type { SourceClass } from '../service/model.ts';
import type { FixtureConfiguration, Server } from './fixture.ts';
import type { EndpointState, Scenario } from './scenarios.ts';

export type DestinationKind = 'clusterIP' | 'nodePort' | 'loadBalancer' | 'externalIP';

/** The expected outcome of a flow. */
export type Expectation =
  | {
      readonly action: 'forward';
      /** Names of the possible servers, sorted; repeated connections reach all of them. */
      readonly servers: readonly string[];
      /** The source that the server sees: the client itself, or the node that translates. */
      readonly source: 'client' | 'node';
    }
  | { readonly action: 'reject' }
  | { readonly action: 'drop' };

type Rule = readonly [endpoints: 'all' | 'local', source: 'client' | 'node'];
type Rows = Readonly<Record<SourceClass, Rule>>;

const CLUSTER_IP: Rows = { pod: ['all', 'client'], node: ['all', 'node'], external: ['all', 'node'] };
const FROM_OUTSIDE: Rows = { pod: ['all', 'node'], node: ['all', 'node'], external: ['all', 'node'] };

/**
 * The rows of upstream's TestInternalExternalMasquerade (pkg/proxy/iptables/proxier_test.go): by traffic policy, by
 * kind of destination, by class of source. Load-balancer addresses and external IPs behave like node ports.
 */
const MATRIX: Readonly<
  Record<
    'cluster' | 'externalLocal' | 'internalLocal' | 'bothLocal',
    Readonly<Record<'clusterIP' | 'external', Rows>>
  >
> = {
  cluster: { clusterIP: CLUSTER_IP, external: FROM_OUTSIDE },
  externalLocal: {
    clusterIP: CLUSTER_IP,
    // The policy applies to clients outside the cluster: pods and nodes reach all endpoints.
    external: { pod: ['all', 'client'], node: ['all', 'node'], external: ['local', 'client'] },
  },
  internalLocal: {
    clusterIP: { pod: ['local', 'client'], node: ['local', 'node'], external: ['local', 'node'] },
    external: FROM_OUTSIDE,
  },
  bothLocal: {
    clusterIP: { pod: ['local', 'client'], node: ['local', 'node'], external: ['local', 'node'] },
    external: { pod: ['all', 'client'], node: ['all', 'node'], external: ['local', 'client'] },
  },
};

/** Returns the rule for a flow: the matrix, adjusted by the configuration. */
function ruleFor(
  scenario: Scenario,
  kind: DestinationKind,
  source: SourceClass,
  configuration: FixtureConfiguration,
): Rule {
  const { externalLocal, internalLocal } = scenario;
  const policy = externalLocal
    ? internalLocal
      ? 'bothLocal'
      : 'externalLocal'
    : internalLocal
      ? 'internalLocal'
      : 'cluster';
  const { localDetection, masqueradeAll } = configuration;
  const isExternal = kind !== 'clusterIP';
  // Without detection of pods, they are treated like clients outside, and none is masqueraded on cluster IPs.
  const seen: SourceClass = source === 'pod' && !localDetection ? 'external' : source;
  const [endpoints, masquerade] = MATRIX[policy][isExternal ? 'external' : 'clusterIP'][seen];
  if (isExternal) return [endpoints, masquerade];
  if (masqueradeAll) return [endpoints, 'node'];
  // A process of a node uses an address of the node anyway.
  if (!localDetection) return [endpoints, source === 'node' ? 'node' : 'client'];
  return [endpoints, masquerade];
}

/** Returns the expected outcome of a new connection that enters the Service rules of `node`. */
export function expect(
  scenario: Scenario,
  kind: DestinationKind,
  source: SourceClass,
  node: string,
  servers: readonly Server[],
  configuration: FixtureConfiguration,
): Expectation {
  const [scope, seen] = ruleFor(scenario, kind, source, configuration);
  const usable = usableServers(scenario, servers, node, scope);
  if (usable.length > 0) {
    return { action: 'forward', servers: usable.map(({ name }) => name).sort(), source: seen };
  }
  // No endpoint: refused. Endpoints on other nodes only: dropped, so that a load balancer tries another node.
  return usableServers(scenario, servers, node, 'all').length === 0
    ? { action: 'reject' }
    : { action: 'drop' };
}

/** Ready endpoints; if there are none, terminating endpoints that still serve (KEP-1669). */
function usableServers(
  scenario: Scenario,
  servers: readonly Server[],
  node: string,
  scope: 'all' | 'local',
): Server[] {
  const stateOf = (server: Server): EndpointState | null => scenario.endpoint(server, servers);
  const inScope = servers.filter((server) => scope === 'all' || server.node === node);
  const ready = inScope.filter((server) => stateOf(server) === 'ready');
  if (ready.length === 0) return inScope.filter((server) => stateOf(server) === 'terminating');
  // Hints are used only if every ready endpoint has one, and never with local policies (KEP-4444, KEP-3015).
  const hinted = scope === 'all' && scenario.nodeHints ? ready.filter((server) => server.node === node) : [];
  return hinted.length > 0 ? hinted : ready;
}
