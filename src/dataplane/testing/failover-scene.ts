import { createServer, Socket } from 'node:net';
import { dial } from '../../failover/dial.ts';
import type { EjectionSettings } from '../../failover/ejection-policy.ts';
import {
  type Failover,
  type FailoverOptions,
  type FailoverVerdict,
  startFailover,
} from '../../failover/failover.ts';
import { listenTcpIn, openTcpIn } from '../../kernel/netns.ts';
import { FAMILY_NAMES, type IPFamily, parseCidr } from '../../lib/address.ts';
import { pause, systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import type { ServiceMap } from '../../service/model.ts';
import type { ServiceObject, SliceEndpoint } from '../../service/objects.ts';
import { createServiceTable } from '../../service/service-table.ts';
import type { Dataplane } from '../dataplane.ts';
import { NODE } from './service-map.ts';
import type { Place, Topology } from './topology.ts';

/** The outcome of a connection. `ms`: from connect() to the end of the answer. */
export interface Answer {
  readonly startedAt: number;
  readonly ms: number;
  /** The place that answered, or null. */
  readonly place: string | null;
  /** "refused", "silence", or an errno code; null if answered. */
  readonly failure: string | null;
}

/** The networks of cluster IPs. */
export const SERVICE_NETWORKS = ['10.96.0.0/16', 'fd00:96::/112'].flatMap((text) => parseCidr(text) ?? []);
export const CLUSTER_IP = { ipv4: '10.96.0.7', ipv6: 'fd00:96::7' } as const;
export const PORT = 80;
export const NODE_PORT = 30007;
const TARGET = 8080;
const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];

/** A dual-stack Service and its endpoints in a topology, programmed by a mode, with or without failover. */
export interface FailoverScene {
  /** Replaces the Service's endpoints; all of them are ready. */
  setEndpoints(places: readonly Place[]): Promise<void>;
  setService(change: { annotations?: Record<string, string>; affinity?: boolean }): Promise<void>;
  /** Starts a server. */
  open(place: Place): Promise<void>;
  /** Stops the server: connections are refused. */
  shut(place: Place): void;
  /** Removes the place's addresses: connections are not answered. */
  vanish(place: Place): void;
  /** Restores the addresses; resolves when the node reaches them. */
  appear(place: Place): Promise<void>;
  connect(from: Place, address: string, port: number): Promise<Answer>;
  /** Opens connections at up to a rate, from the places in turn, until stopped. */
  load(from: readonly Place[], address: string, port: number, perSecond: number): Load;
  readonly verdicts: readonly FailoverVerdict[];
  readonly failover: Failover | null;
  /** Number of deleted entries of unanswered connections. */
  readonly unanswered: number;
  /** Resolves when the table is programmed. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

export interface Load {
  /** Stops, and resolves when all connections have ended. */
  stop(): Promise<Answer[]>;
  /** Stops after a delay in milliseconds. */
  stopAfter(ms: number): Promise<Answer[]>;
}

export interface SceneOptions {
  readonly failover: boolean;
  /** False for a mode that does not use connection tracking. Default: true. */
  readonly tracked?: boolean;
  readonly settings?: EjectionSettings;
  readonly shortTimers?: FailoverOptions['shortTimers'];
  /** Timeout of a connection. Default: 30 s. */
  readonly patienceMs?: number;
}

/** How long a connection may take on a machine that is slow, or that pauses. */
const PATIENCE_MS = 30_000;
/** The connections that a load opens at once after its timer was late. */
const MAX_BURST = 20;
/** The connections that a load keeps open at a time: on a slow machine, more of them would only make it slower. */
const MAX_OPEN = 100;

/** Opens connections from places in turn, so many a second, until it is stopped. */
function openLoad(from: readonly Place[], perSecond: number, connectFrom: (place: Place) => Promise<Answer>) {
  const answers: Promise<Answer>[] = [];
  let open = 0;
  let begin = performance.now();
  const timer = setInterval(() => {
    const due = () => ((performance.now() - begin) * perSecond) / 1000;
    // Opens the connections that are due, even if the timer is late, but not those of a long interruption: so many at
    // once would overload the machine.
    const missed = Math.max(0, due() - answers.length - MAX_BURST);
    begin += (missed * 1000) / perSecond;
    while (open < MAX_OPEN && answers.length < due()) {
      const place = from[answers.length % from.length] as Place;
      open++;
      answers.push(
        connectFrom(place).finally(() => {
          open--;
        }),
      );
    }
  }, 5);
  const stop = async () => {
    clearInterval(timer);
    return await Promise.all(answers);
  };
  return {
    stop,
    async stopAfter(ms: number) {
      await pause(systemClock, ms);
      return await stop();
    },
  };
}

/** Returns the EndpointSlice of a family. */
const sliceOf = (topology: Topology, places: readonly Place[], family: IPFamily) => ({
  metadata: {
    namespace: 'shop',
    name: `web-${family}`,
    labels: { 'kubernetes.io/service-name': 'web' },
  },
  addressType: FAMILY_NAMES[family],
  ports: [{ name: 'http', protocol: 'TCP', port: TARGET }],
  endpoints: places.map(
    (place): SliceEndpoint => ({
      addresses: [topology.address(place, family)],
      nodeName: place === 'far' ? 'node-2' : NODE.name,
      conditions: { ready: true, serving: true, terminating: false },
    }),
  ),
});

type ServiceOptions = Parameters<FailoverScene['setService']>[0];
const serviceOf = ({ annotations = {}, affinity = false }: ServiceOptions): ServiceObject => ({
  metadata: { namespace: 'shop', name: 'web', annotations },
  spec: {
    type: 'NodePort',
    clusterIP: CLUSTER_IP.ipv4,
    clusterIPs: [CLUSTER_IP.ipv4, CLUSTER_IP.ipv6],
    ports: [{ name: 'http', protocol: 'TCP', port: PORT, nodePort: NODE_PORT }],
    ...(affinity ? { sessionAffinity: 'ClientIP' } : {}),
  },
});

/** Serves a listening socket: answers each connection with a text, and ends it. */
const serveName = (text: string, fd: number) =>
  createServer((socket) => {
    socket.on('error', () => {});
    socket.end(text);
  }).listen({ fd });

export async function createFailoverScene(
  topology: Topology,
  dataplane: Dataplane,
  { failover: wanted, tracked = true, settings, shortTimers, patienceMs = PATIENCE_MS }: SceneOptions,
): Promise<FailoverScene> {
  const table = createServiceTable(NODE);
  const listeners = new Map<Place, (() => void)[]>();
  const verdicts: FailoverVerdict[] = [];
  let unanswered = 0;
  let map: ServiceMap | null = null;
  let places: readonly Place[] = [];
  let running: Promise<void> = Promise.resolve();

  const program = async () => {
    if (!table.dirty) return;
    const commit = table.commit();
    const first = map === null;
    map = commit.map;
    const report = first ? await dataplane.sync(map) : await dataplane.apply(commit.change, map);
    for (const { error } of report.failed) throw error;
    failover?.follow(commit.change);
  };
  const settled = () => {
    running = running.then(program);
    return running;
  };
  const failover = wanted
    ? startFailover({
        families: FAMILIES,
        netns: topology.namespace('node'),
        clock: systemClock,
        logger: silentLogger,
        map: () => map,
        tracked: () => tracked,
        onEjected(endpoints) {
          table.setEjected(endpoints);
          void settled();
        },
        onVerdict: (verdict) => verdicts.push(verdict),
        onUnanswered(count) {
          unanswered += count;
        },
        ...(settings ? { settings } : {}),
        ...(shortTimers ? { shortTimers } : {}),
      })
    : null;

  const scene: FailoverScene = {
    setEndpoints(next) {
      places = next;
      for (const family of FAMILIES) table.setSlice(sliceOf(topology, places, family));
      return settled();
    },
    setService(options) {
      table.setService(serviceOf(options));
      return settled();
    },
    async open(place) {
      const servers = ['0.0.0.0', '::'].map((wildcard) =>
        serveName(place, listenTcpIn(topology.namespace(place), wildcard, TARGET)),
      );
      listeners.set(
        place,
        servers.map((server) => () => server.close()),
      );
    },
    shut(place) {
      for (const close of listeners.get(place) ?? []) close();
      listeners.delete(place);
    },
    vanish(place) {
      for (const family of FAMILIES) addresses('del', place, family);
    },
    async appear(place) {
      const node = topology.namespace('node');
      for (const family of FAMILIES) {
        addresses('add', place, family);
        const endpoint = { ip: topology.address(place, family), port: TARGET };
        // The kernel retries the resolution of a failed neighbour only after a second.
        while ((await dial(endpoint, 200, systemClock, node)) === 'timeout');
      }
    },
    connect: (from, address, port) => connect(topology.namespace(from), address, port, patienceMs),
    load: (from, address, port, perSecond) =>
      openLoad(from, perSecond, (place) => scene.connect(place, address, port)),
    verdicts,
    failover,
    get unanswered() {
      return unanswered;
    },
    settled,
    async close() {
      failover?.close();
      for (const place of [...listeners.keys()]) scene.shut(place);
      await running;
    },
  };

  function addresses(verb: 'add' | 'del', place: Place, family: IPFamily): void {
    const device = place === 'far' ? 'lo' : 'eth0';
    const address = topology.address(place, family);
    const length = family === 'ipv4' ? '32' : '128 nodad';
    topology.configure(
      place,
      `addr ${verb} ${address}/${verb === 'del' ? length.split(' ')[0] : length} dev ${device}`,
    );
    if (verb === 'del') return;
    // Routes that used the address were removed with it.
    const gateway =
      place === 'far'
        ? topology.address('node', family)
        : { ipv4: '10.244.1.1', ipv6: 'fd00:244:1::1' }[family];
    topology.configure(
      place,
      `route replace ${gateway} dev eth0 src ${address}`,
      `route replace default via ${gateway} dev eth0 src ${address}`,
    );
  }

  await scene.setService({});
  return scene;
}

function connect(netns: string, address: string, port: number, patienceMs: number): Promise<Answer> {
  return new Promise((resolve) => {
    const startedAt = performance.now();
    const socket = new Socket({ fd: openTcpIn(netns, address.includes(':') ? 'ipv6' : 'ipv4') });
    let text = '';
    const finish = (place: string | null, failure: string | null) => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ startedAt, ms: performance.now() - startedAt, place, failure });
    };
    const timer = setTimeout(() => finish(null, 'silence'), patienceMs);
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
    });
    socket.on('end', () => finish(text, null));
    socket.on('error', (error: NodeJS.ErrnoException) =>
      finish(null, error.code === 'ECONNREFUSED' ? 'refused' : (error.code ?? 'error')),
    );
    socket.connect(port, address);
  });
}
