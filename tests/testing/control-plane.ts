import { createApiServer } from '../../src/apiserver/api-server.ts';
import { KINDS } from '../../src/apiserver/kinds.ts';
import { createSchemaService } from '../../src/apiserver/schema/service.ts';
import { startControllers } from '../../src/controllers/start.ts';
import { LOCAL_PATH, type LocalVolumes } from '../../src/controllers/storage/provisioning.ts';
import { type Client, createClient } from '../../src/kube/client.ts';
import { type Informer, startInformer } from '../../src/kube/informer.ts';
import type { Transport } from '../../src/kube/transport.ts';
import { type KubeObject, type Node, type Pod, RESOURCES, type Resource } from '../../src/kube/types.ts';
import { systemClock } from '../../src/lib/clock.ts';
import type { Logger } from '../../src/lib/log.ts';
import { silentLogger } from '../../src/lib/log.ts';
import { createAuthority, createSigningKey } from '../../src/lib/pki.ts';
import type { LoadBalancerPool } from '../../src/loadbalancer/address-pools.ts';

/** The embedded API server and the controllers in this process, with kubelets that only write statuses. */
export interface ControlPlane {
  readonly client: Client;
  /** A transport directly into the server. */
  readonly transport: Transport;
  /** Adds a node whose kubelet runs pods at once, and renews no Lease. */
  addNode(
    name: string,
    fields?: { labels?: Record<string, string>; allocatable?: Record<string, string> },
  ): Promise<void>;
  /**
   * Resolves to the result of `read` as soon as it is not undefined; reads after each change of the kind.
   */
  until<T extends KubeObject, R>(
    resource: Resource<T>,
    what: string,
    read: (objects: T[]) => R | undefined,
  ): Promise<R>;
  /** Ends the controllers immediately, and starts new ones. */
  restartControllers(): Promise<void>;
  /** While it is set, kubelets write nothing. */
  freeze: boolean;
  /** Renews the Lease of a node. */
  beat(name: string): Promise<void>;
  /** Warnings and errors in the log. */
  readonly complaints: string[];
  close(): Promise<void>;
}

export async function startControlPlane(
  options: {
    readonly clusterCidrs?: readonly string[];
    readonly nodeGraceSeconds?: number;
    /** Where the local-path provisioner keeps volumes; absent: no provisioner. */
    readonly localVolumes?: LocalVolumes;
    /** Read again by `restartControllers`. */
    loadBalancerPools?: readonly LoadBalancerPool[];
    /** Wraps the transport between the controllers and the server. */
    readonly disturb?: (transport: Transport) => Transport;
  } = {},
): Promise<ControlPlane> {
  const ca = createAuthority('test', new Date());
  const identity = ca.issue({ commonName: 'test', organizations: [], names: ['localhost'], usage: 'server' });
  const material = { ...identity, ca: ca.cert, clientCa: ca.cert };
  const complaints: string[] = [];
  const logger: Logger = {
    ...silentLogger,
    warn: (_fields, message) => complaints.push(message),
    error: (_fields, message) => complaints.push(message),
    child: () => logger,
  };
  const server = createApiServer({
    dataFile: ':memory:',
    serviceCidrs: ['10.96.0.0/16', 'fd00:96::/112'],
    ...(options.localVolumes ? { storageProvisioner: LOCAL_PATH } : {}),
    nodePorts: { first: 30000, last: 32767 },
    advertise: { addresses: [], port: 6443 },
    tls: material,
    nodeTls: material,
    tokenKey: createSigningKey(),
    schema: createSchemaService({ kinds: KINDS }),
    tables: { columns: () => [], cells: () => [] },
    version: 'v1.36.0',
    clock: systemClock,
    random: Math.random,
    logger,
  });
  const ending = new AbortController();
  const { signal } = ending;
  const client = createClient(server.transport, 'test');
  const follow = <T extends KubeObject>(resource: Resource<T>): Informer<T> =>
    startInformer({ client, resource, clock: systemClock, random: Math.random, logger, signal });
  const informers = new Map<Resource, Informer<KubeObject>>();
  const informerOf = <T extends KubeObject>(resource: Resource<T>): Informer<T> => {
    const known = informers.get(resource) ?? follow(resource as Resource);
    informers.set(resource, known);
    return known as unknown as Informer<T>;
  };
  const kubelets = { frozen: false };
  const kubelet = simulateKubelets(client, informerOf(RESOURCES.pods), kubelets, complaints, signal);
  const beat = async (name: string) => {
    const now = new Date().toISOString();
    const condition = { type: 'Ready', status: 'True', reason: 'KubeletReady', lastHeartbeatTime: now };
    const status = { conditions: [condition] };
    await client.patch(RESOURCES.nodes, name, 'strategic', { status }, { subresource: 'status' });
    for (const pod of informerOf(RESOURCES.pods).list()) kubelet.look(pod);
  };
  let generation = new AbortController();
  const start = async () => {
    const transport = options.disturb ? options.disturb(server.transport) : server.transport;
    const { ready } = startControllers({
      client: createClient(transport, 'controllers'),
      clock: systemClock,
      random: Math.random,
      logger,
      signal: AbortSignal.any([signal, generation.signal]),
      options: {
        clusterCidrs: options.clusterCidrs ?? ['10.244.0.0/16'],
        caBundle: ca.cert,
        ...(options.localVolumes ? { localVolumes: options.localVolumes } : {}),
        ...(options.loadBalancerPools === undefined ? {} : { loadBalancerPools: options.loadBalancerPools }),
        ...(options.nodeGraceSeconds === undefined ? {} : { nodeGraceSeconds: options.nodeGraceSeconds }),
      },
    });
    await ready;
  };
  await start();
  return {
    client,
    transport: server.transport,
    get freeze() {
      return kubelets.frozen;
    },
    set freeze(frozen) {
      kubelets.frozen = frozen;
    },
    beat,
    complaints,
    async restartControllers() {
      generation.abort();
      generation = new AbortController();
      await start();
    },
    async addNode(name, { labels = {}, allocatable = {} } = {}) {
      const node: Node = { metadata: { name, labels: { 'kubernetes.io/hostname': name, ...labels } } };
      await client.create(RESOURCES.nodes, node);
      const status = { allocatable: { cpu: '4', memory: '8Gi', pods: '110', ...allocatable } };
      await client.patch(RESOURCES.nodes, name, 'merge', { status }, { subresource: 'status' });
      await beat(name);
    },
    async until(resource, what, read) {
      const informer = informerOf(resource);
      await informer.synced;
      return new Promise((resolve, reject) => {
        const look = () => {
          const found = read(informer.list());
          if (found === undefined) return;
          finish();
          resolve(found);
        };
        const late = setTimeout(() => {
          finish();
          const state = JSON.stringify(informer.list(), null, 1);
          reject(
            new Error(
              `not within 60 s: ${what}\ncomplaints: ${complaints.slice(0, 10).join('\n')}\n${state.slice(0, 3000)}`,
            ),
          );
        }, 60_000);
        let stop = () => {};
        const finish = () => {
          clearTimeout(late);
          stop();
        };
        stop = informer.handle({ onAdd: look, onUpdate: look, onDelete: look });
        look();
      });
    },
    async close() {
      ending.abort();
      await kubelet.end();
      await server.close();
    },
  };
}

/** Starts bound pods at once, and removes deleted ones at once. */
function simulateKubelets(
  client: Client,
  pods: Informer<Pod>,
  kubelets: { readonly frozen: boolean },
  complaints: string[],
  signal: AbortSignal,
): { look(pod: Pod): void; end(): Promise<void> } {
  let serial = 0;
  const running = new Set<Promise<void>>();
  const addresses = new Map<string, string>();
  const serve = async (pod: Pod) => {
    const { name = '', namespace = '', uid = '' } = pod.metadata ?? {};
    if (!pod.spec?.nodeName || kubelets.frozen) return;
    if (pod.metadata?.deletionTimestamp) {
      await client.delete(RESOURCES.pods, name, { namespace, gracePeriodSeconds: 0, uid }).catch(() => {});
      return;
    }
    if (pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed') return;
    const ip = addresses.get(uid) ?? `10.244.${Math.floor(++serial / 250)}.${(serial % 250) + 1}`;
    addresses.set(uid, ip);
    const ready = pod.spec.containers.some(({ image }) => image === 'host:unready') ? 'False' : 'True';
    const known = pod.status?.conditions?.find(({ type }) => type === 'Ready');
    const phase = pod.spec.containers.some(({ image }) => image === 'host:succeeds')
      ? 'Succeeded'
      : pod.spec.containers.some(({ image }) => image === 'host:fails')
        ? 'Failed'
        : 'Running';
    if (known?.status === ready && pod.status?.phase === phase) return;
    const lastTransitionTime = `${new Date().toISOString().slice(0, 19)}Z`;
    const status = {
      phase,
      podIP: ip,
      podIPs: [{ ip }],
      conditions: [{ type: 'Ready', status: phase === 'Running' ? ready : 'False', lastTransitionTime }],
    };
    await client.patch(
      RESOURCES.pods,
      name,
      'strategic',
      { metadata: { uid }, status },
      { namespace, subresource: 'status' },
    );
  };
  const start = (pod: Pod) => {
    if (signal.aborted) return;
    const run = serve(pod).catch((error: Error) => {
      if (!signal.aborted && !/not found|UID/.test(error.message))
        complaints.push(`kubelet: ${error.message}`);
    });
    running.add(run);
    void run.finally(() => running.delete(run));
  };
  pods.handle({ onAdd: start, onUpdate: start });
  return {
    look: start,
    async end() {
      await Promise.all(running);
    },
  };
}
