import type { ServiceSpec } from '../service/objects.ts';
import type { Server } from './fixture.ts';

/** Conditions of an endpoint: "terminating" still serves, "gone" no longer serves. */
export type EndpointState = 'ready' | 'notReady' | 'terminating' | 'gone';

/** One Service with a policy and endpoints in known states. */
export interface Scenario {
  readonly name: string;
  readonly describes: string;
  readonly externalLocal: boolean;
  readonly internalLocal: boolean;
  readonly nodeHints: boolean;
  readonly affinity: boolean;
  /** `loadBalancerSourceRanges`: null: not set. "outside": only the client outside is allowed; "none": no client. */
  readonly sourceRanges: 'outside' | 'none' | null;
  /** The state of a server in this Service; null: not an endpoint. */
  endpoint(server: Server, all: readonly Server[]): EndpointState | null;
  readonly spec?: Partial<ServiceSpec>;
}

const PLAIN = {
  externalLocal: false,
  internalLocal: false,
  nodeHints: false,
  affinity: false,
  sourceRanges: null,
  endpoint: (): EndpointState => 'ready',
} as const;

/** The first server of the fixture is the "one of several". */
const isFirst = (server: Server, all: readonly Server[]) => server.name === all[0]?.name;
const isOnFirstNode = (server: Server, all: readonly Server[]) => server.node === all[0]?.node;

export const SCENARIOS: readonly Scenario[] = [
  { ...PLAIN, name: 'plain', describes: 'policy Cluster, all endpoints ready' },
  { ...PLAIN, name: 'external-local', describes: 'externalTrafficPolicy: Local', externalLocal: true },
  { ...PLAIN, name: 'internal-local', describes: 'internalTrafficPolicy: Local', internalLocal: true },
  {
    ...PLAIN,
    name: 'both-local',
    describes: 'both traffic policies Local',
    externalLocal: true,
    internalLocal: true,
  },
  { ...PLAIN, name: 'not-ready', describes: 'no endpoint is ready', endpoint: () => 'notReady' },
  { ...PLAIN, name: 'empty', describes: 'no endpoints', endpoint: () => null },
  {
    ...PLAIN,
    name: 'one-ready',
    describes: 'one endpoint ready, the others not, one terminating',
    endpoint: (server, all) =>
      isFirst(server, all) ? 'ready' : isOnFirstNode(server, all) ? 'terminating' : 'notReady',
  },
  {
    ...PLAIN,
    name: 'terminating',
    describes: 'all endpoints terminating, still serving but one',
    endpoint: (server, all) => (isFirst(server, all) ? 'gone' : 'terminating'),
  },
  {
    ...PLAIN,
    name: 'local-terminating',
    describes: 'both policies Local, local endpoints terminating but serving, others ready',
    externalLocal: true,
    internalLocal: true,
    endpoint: (server, all) => (isOnFirstNode(server, all) ? 'terminating' : 'ready'),
  },
  { ...PLAIN, name: 'node-hints', describes: 'hints that name nodes', nodeHints: true },
  { ...PLAIN, name: 'affinity', describes: 'sessionAffinity: ClientIP', affinity: true },
  {
    ...PLAIN,
    name: 'ranges-outside',
    describes: 'loadBalancerSourceRanges that let only outside enter',
    sourceRanges: 'outside',
  },
  {
    ...PLAIN,
    name: 'ranges-none',
    describes: 'loadBalancerSourceRanges that admit no client, externalTrafficPolicy: Local',
    sourceRanges: 'none',
    externalLocal: true,
  },
];
