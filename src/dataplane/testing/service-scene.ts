import assert from 'node:assert/strict';
import type { IPFamily } from '../../lib/address.ts';
import type { Endpoint, Frontend, FrontendKind, NodeView, ServiceOptions } from '../../service/model.ts';
import type { ApplyReport, Dataplane } from '../dataplane.ts';
import { changeBetween, endpoint, type FrontendOptions, frontend, NODE, serviceMap } from './service-map.ts';
import { createTopology, type Place, type Topology } from './topology.ts';

export const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
export const PROTOCOLS = ['TCP', 'UDP'] as const;
export const POLICIES = ['plain', 'external-local', 'internal-local'] as const;
export const KINDS = ['ClusterIP', 'NodePort', 'LoadBalancer'] as const;
/** The places with servers, and the places on the node itself. */
export const ALL: readonly Place[] = ['pod1', 'pod2', 'far'];
export const LOCAL: readonly Place[] = ['pod1', 'pod2'];
/** The port of the servers. */
export const TARGET = 8080;
/** The node's addresses, any of which the kernel may choose as source. */
const NODE_ADDRESSES = ['192.0.2.10', '10.244.1.1', 'fd00:2::10', 'fd00:244:1::1'];

export type Transport = (typeof PROTOCOLS)[number];
export type Policy = (typeof POLICIES)[number];
export type Destination = [address: string, port: number];

/** Works like `Topology.ask`: "PLACE CLIENT-ADDRESS", "refused", or "silence". */
export type Ask = (
  from: Place,
  protocol: Transport,
  address: string,
  port: number,
  patience?: number,
) => Promise<string>;

export interface ServiceTraits {
  readonly affinitySeconds?: number;
  /** Source ranges of the load-balancer addresses. */
  readonly allowedSources?: readonly string[];
  readonly balance?: ServiceOptions['balance'];
}

/** Properties of a mode that affect its scene. */
export interface SceneOptions<D extends Dataplane> {
  /** Opens the mode in the node's network namespace. */
  readonly open: (netns: string) => D;
  /** How a place connects, unless through any socket in its network namespace. */
  readonly ask?: (bySocket: Ask) => Ask;
  /** Whether every endpoint sees the node's address for every client, and is chosen in turn. */
  readonly proxy?: boolean;
}

/** Services on the node of a topology, programmed by one mode, with clients in all places. */
export interface ServiceScene<D extends Dataplane = Dataplane> {
  readonly proxy: boolean;
  readonly topology: Topology;
  readonly dataplane: D;
  start(): Promise<void>;
  /** Opens the mode again after it was closed, as a new process would; `open`: with another function. */
  reopen(open?: (netns: string) => D): void;
  close(): Promise<void>;

  /** Returns these places as endpoints, with the port of their servers. */
  at(family: IPFamily, ...places: Place[]): Endpoint[];
  /** Returns one Service in every family and protocol, with all kinds of frontends, numbered `n`. */
  service(n: number, places: readonly Place[], policy?: Policy, traits?: ServiceTraits): Frontend[];
  /** Returns the address and port of Service `n`. */
  destination(kind: FrontendKind, family: IPFamily, n: number): Destination;

  /** Programs these frontends, regardless of the previous state. */
  sync(frontends: readonly Frontend[], node?: NodeView): Promise<ApplyReport>;
  /** Changes to these frontends from those of the last `sync` or `apply`. */
  apply(frontends: readonly Frontend[]): Promise<ApplyReport>;
  /** Asserts that the kernel has the expected state. */
  expectVerified(): Promise<void>;

  readonly ask: Ask;
  /**
   * Connects until every expected place has answered, and checks each answer: the place, and whether it saw
   * the client's own address or the node's.
   */
  expectPlaces(
    from: Place,
    protocol: Transport,
    to: Destination,
    places: readonly Place[],
    masqueraded: boolean,
  ): Promise<void>;
}

export const clusterIP = (family: IPFamily, n: number): string =>
  family === 'ipv4' ? `10.96.0.${n}` : `fd00:96::${n}`;
export const vip = (family: IPFamily, n: number): string =>
  family === 'ipv4' ? `203.0.113.${n}` : `fd00:113::${n}`;

/** Runs a check in every family and protocol concurrently. */
export async function everywhere(
  run: (family: IPFamily, protocol: Transport) => Promise<void>,
): Promise<void> {
  await Promise.all(FAMILIES.flatMap((family) => PROTOCOLS.map((protocol) => run(family, protocol))));
}

/** Creates a scene; nothing exists before `start`. */
export function createServiceScene<D extends Dataplane>(options: SceneOptions<D>): ServiceScene<D> {
  const { proxy = false } = options;
  let started: { readonly topology: Topology; dataplane: D } | null = null;
  let map = serviceMap([]);
  const scene = () => started ?? assert.fail('the scene has not been started');

  const at = (family: IPFamily, ...places: Place[]) =>
    places.map((place) => endpoint(scene().topology.address(place, family), TARGET, place !== 'far'));

  const bySocket: Ask = (from, protocol, address, port, patience) =>
    scene().topology.ask(from, protocol, address, port, undefined, patience);
  const ask = options.ask?.(bySocket) ?? bySocket;

  function serviceIn(
    family: IPFamily,
    protocol: Transport,
    n: number,
    places: readonly Place[],
    policy: Policy,
    { allowedSources, balance = 'random', ...traits }: ServiceTraits,
  ): Frontend[] {
    const shared = {
      service: `s${n}`,
      family,
      protocol,
      policy,
      endpoints: at(family, ...places),
      ...traits,
    };
    const made: FrontendOptions[] = [
      { ...shared, kind: 'ClusterIP', address: clusterIP(family, n), port: 80 },
      { ...shared, kind: 'NodePort', address: null, port: 30000 + n },
      {
        ...shared,
        kind: 'LoadBalancer',
        address: vip(family, n),
        port: 80,
        ...(allowedSources ? { allowedSources } : {}),
      },
    ];
    return made.map(frontend).map((one) => ({ ...one, options: { ...one.options, balance } }));
  }

  return {
    proxy,
    get topology() {
      return scene().topology;
    },
    get dataplane() {
      return scene().dataplane;
    },
    async start() {
      const topology = createTopology();
      try {
        for (const place of ALL) await topology.serve(place, TARGET);
        started = { topology, dataplane: options.open(topology.namespace('node')) };
      } catch (error) {
        topology.close();
        throw error;
      }
    },
    reopen(open = options.open) {
      scene().dataplane = open(scene().topology.namespace('node'));
    },
    async close() {
      await started?.dataplane.close();
      started?.topology.close();
    },
    at,
    service: (n, places, policy = 'plain', traits = {}) =>
      FAMILIES.flatMap((family) =>
        PROTOCOLS.flatMap((protocol) => serviceIn(family, protocol, n, places, policy, traits)),
      ),
    destination(kind, family, n) {
      switch (kind) {
        case 'ClusterIP':
          return [clusterIP(family, n), 80];
        case 'NodePort':
          return [scene().topology.address('node', family), 30000 + n];
        default:
          return [vip(family, n), 80];
      }
    },
    sync(frontends, node = NODE) {
      map = serviceMap(frontends, node);
      return scene().dataplane.sync(map);
    },
    apply(frontends) {
      const before = map;
      map = serviceMap(frontends, before.node);
      return scene().dataplane.apply(changeBetween(before, map), map);
    },
    async expectVerified() {
      assert.deepEqual(await scene().dataplane.verify(), []);
    },
    ask,
    async expectPlaces(from, protocol, [address, port], places, masqueraded) {
      const seen = new Set<string>();
      const family = address.includes(':') ? 'ipv6' : 'ipv4';
      // A proxy takes endpoints in turn, and skips one that a busy machine keeps from answering in time.
      const maxTries = proxy ? 5 * places.length : 80;
      for (let i = 0; i < maxTries && (seen.size < places.length || i < 6); i++) {
        const answer = await ask(from, protocol, address, port);
        const [place = '', source = ''] = answer.split(' ');
        assert.ok(places.includes(place as Place), `${from} → ${address}:${port}/${protocol}: ${answer}`);
        if (masqueraded) assert.ok(NODE_ADDRESSES.includes(source), `${place} saw ${source}, not the node`);
        else assert.equal(source, scene().topology.address(from, family), `${place} saw ${source}`);
        seen.add(place);
      }
      assert.deepEqual([...seen].sort(), [...places].sort());
    },
  };
}
