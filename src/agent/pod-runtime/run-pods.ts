import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { type Client, createClient } from '../../kube/client.ts';
import { extendedResources } from '../../kube/extended-resources.ts';
import type { Amounts } from '../../kube/quota/amounts.ts';
import { contactOf } from '../../kube/server-contact.ts';
import { RESOURCES } from '../../kube/types.ts';
import { type Clock, pause } from '../../lib/clock.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { type Kubelet, startKubelet } from '../../runtime/kubelet.ts';
import type { BuiltinImage, KubeletOptions } from '../../runtime/options.ts';
import type { PodNetwork } from '../../runtime/pod-network.ts';
import { connectToApi } from '../api-connection.ts';
import { openKnownApiServers } from '../known-api-servers.ts';
import { createImagePuller, type ImagePullerOptions } from './image-puller.ts';
import { type Link, openLink } from './link.ts';
import type { MachinePulls } from './machine-pulls.ts';
import {
  type AgentNotices,
  LINK_VERSION,
  type RuntimeAnswers,
  type RuntimeConfiguration,
  type RuntimeNotices,
  type RuntimeQuestions,
  type ServingTexts,
  type Surroundings,
} from './messages.ts';

/** Longer than the wait for a pod's policies, and for the removal of its device. */
const ANSWER_MS = 60_000;
/** How long an end waits for open requests. */
const CLOSE_MS = 1000;
const UNKNOWN: Surroundings = { nameServers: [], apiServers: [] };

export interface RunPodsOptions {
  /** The socket to the agent, which has started this process. */
  readonly socket: Duplex;
  readonly builtinImages: (stateDir: string) => Readonly<Record<string, BuiltinImage>>;
  /** How the nodes of a local cluster pull images, and the program that does; null: by this process. */
  readonly pulls: (MachinePulls & { readonly program: ImagePullerOptions['program'] }) | null;
  readonly version: string;
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** The state of the node as the agent tells it, and the listeners of its changes. */
interface NodeView {
  surroundings: Surroundings;
  allocatable: Amounts;
  readonly onAllocatable: Set<() => void>;
  readonly onServing: Set<(changed: Partial<ServingTexts>) => void>;
}

/**
 * Runs the pods of a node as the agent at the other end of the socket says, until that ends, or the signal aborts; the pods keep
 * running. Resolves to the exit status.
 */
export async function runPods(options: RunPodsOptions): Promise<number> {
  const { socket, clock, logger, signal } = options;
  const started = Promise.withResolvers<AgentNotices['start']>();
  const opened = Promise.withResolvers<AgentNotices['open']>();
  const view: NodeView = {
    surroundings: UNKNOWN,
    allocatable: {},
    onAllocatable: new Set(),
    onServing: new Set(),
  };
  const link = openLink({
    socket,
    async answer(name, body) {
      if (name !== 'ping') throw noSuch(name);
      view.surroundings = body as Surroundings;
    },
    notice(name, body) {
      takeNotice({ name, body } as AgentNotice, view, { started, opened });
    },
    clock,
    logger,
  });
  const ending = new AbortController();
  const stopped = Promise.race([link.ended, aborted(signal)]);
  void stopped.then((reason) => ending.abort(new FairleadError(reason, { op: 'run pods', code: 'ended' })));
  const first = await Promise.race([started.promise, stopped]);
  if (typeof first === 'string') return 0;
  if (first.version !== LINK_VERSION) {
    const message = `the agent speaks version ${first.version} of their link, this program version ${LINK_VERSION}: restart the agent`;
    logger.error({}, message);
    return 1;
  }
  const api = connect(first.configuration, view, options);
  const service = apiService(api.client, first.configuration, logger);
  const second = await Promise.race([opened.promise, stopped]);
  let kubelet: Kubelet | null = null;
  if (typeof second !== 'string') {
    view.surroundings = second.surroundings;
    view.allocatable = second.allocatable;
    kubelet = await startKubelet(
      kubeletOptions({
        ...{ link, view, start: first, open: second, options, client: api.client },
        apiService: await service,
        signal: ending.signal,
      }),
    );
    kubelet.ready
      .then(() => link.notify('ready' satisfies keyof RuntimeNotices, null))
      .catch((error: unknown) => {
        if (!ending.signal.aborted) throw error;
      });
    await stopped;
  }
  await Promise.race([kubelet?.close(), pause(clock, CLOSE_MS)]);
  link.close();
  api.close();
  return 0;
}

type AgentNotice = {
  [N in keyof AgentNotices]: { readonly name: N; readonly body: AgentNotices[N] };
}[keyof AgentNotices];

function takeNotice(
  { name, body }: AgentNotice,
  view: NodeView,
  {
    started,
    opened,
  }: {
    readonly started: PromiseWithResolvers<AgentNotices['start']>;
    readonly opened: PromiseWithResolvers<AgentNotices['open']>;
  },
): void {
  switch (name) {
    case 'start':
      started.resolve(body);
      return;
    case 'open':
      opened.resolve(body);
      return;
    case 'allocatable':
      view.allocatable = body;
      for (const listener of view.onAllocatable) listener();
      return;
    case 'serving':
      for (const listener of view.onServing) listener(body);
      return;
    default:
      throw noSuch(name);
  }
}

const noSuch = (name: string) =>
  new FairleadError(`message of an unknown name ${JSON.stringify(name).slice(0, 40)}`, {
    op: 'run pods',
    code: 'bad-request',
  });

function aborted(signal: AbortSignal): Promise<string> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve('stopped');
    signal.addEventListener('abort', () => resolve('stopped'), { once: true });
  });
}

/** Connects to the API server with the agent's credentials, which both read from their files. */
function connect(
  configuration: RuntimeConfiguration,
  view: NodeView,
  { clock, random, version, logger }: RunPodsOptions,
): { readonly client: Client; close(): void } {
  const earlier = openKnownApiServers(configuration.stateDir, logger).urls();
  const transport = connectToApi(configuration, {
    clock,
    random,
    logger,
    known: () => (view.surroundings.apiServers.length > 0 ? view.surroundings.apiServers : earlier),
    onReturn: () => contactOf(client, { clock, logger }).wake(),
  });
  const client = createClient(transport, `fairlead-agent/${version}`);
  return { client, close: () => transport.close() };
}

/** Returns the address of the API server for pods: as configured, else the cluster IP of its Service, as upstream's kubelet. */
async function apiService(
  client: Client,
  { pods: { apiServiceHost, apiServicePort } }: RuntimeConfiguration,
  logger: Logger,
): Promise<KubeletOptions['apiService']> {
  const configured = { host: apiServiceHost, port: apiServicePort };
  if (apiServiceHost !== '') return configured;
  try {
    const { spec } = await client.get(RESOURCES.services, 'kubernetes', 'default');
    const port = spec?.ports?.find(({ name }) => name === 'https')?.port ?? apiServicePort;
    return { host: spec?.clusterIP ?? '', port };
  } catch (error) {
    logger.warn({}, `pods get no KUBERNETES_SERVICE_HOST; set pods.apiServiceHost: ${messageOf(error)}`);
    return configured;
  }
}

function kubeletOptions({
  link,
  view,
  start: { configuration, flags },
  open,
  options,
  ...given
}: {
  readonly link: Link;
  readonly view: NodeView;
  readonly start: AgentNotices['start'];
  readonly open: AgentNotices['open'];
  readonly options: RunPodsOptions;
} & Pick<KubeletOptions, 'client' | 'apiService' | 'signal'>): KubeletOptions {
  const { clock, random, version, logger, pulls } = options;
  const { pods, nodeName, stateDir, clusterDomain, clusterDns } = configuration;
  const ask = asker(link);
  const images = {
    folder: pods.imagesDir ?? join(stateDir, 'images'),
    plainHttp: pods.plainHttpRegistries,
    limits: pods.imageLimits,
  };
  return {
    ...given,
    ...{ nodeName, stateDir, clusterDomain, clusterDns, logger, version, flags, clock, random },
    nodeAddresses: pods.nodeAddresses,
    cgroupParent: pods.cgroupParent,
    maxPods: pods.maxPods,
    extendedResources: {
      current: () => extendedResources(view.allocatable),
      onChange: (listener) => void view.onAllocatable.add(listener),
      async refresh() {
        view.allocatable = await ask('refresh', null);
      },
    },
    network: remoteNetwork(ask, view, open.addresses),
    // A getter, since the set of nodes changes.
    get fallbackDns() {
      return view.surroundings.nameServers;
    },
    builtinImages: options.builtinImages(stateDir),
    images: {
      ...images,
      ...(pulls === null
        ? {}
        : {
            pull: createImagePuller({
              ...{ ...images, pulls, program: pulls.program, cgroupParent: pods.cgroupParent },
              ...{ clock, logger, signal: given.signal },
            }),
          }),
    },
    server: {
      ...open.serving,
      port: pods.port,
      onChange: (listener) => void view.onServing.add(listener),
    },
    ...(open.knowsTraffic
      ? { trafficOf: (addresses: readonly string[]) => ask('traffic', { addresses }) }
      : {}),
    startedAt: clock.now(),
  };
}

type Ask = <N extends keyof RuntimeQuestions>(
  name: N,
  body: RuntimeQuestions[N],
) => Promise<RuntimeAnswers[N]>;

const asker =
  (link: Link): Ask =>
  async <N extends keyof RuntimeQuestions>(name: N, body: RuntimeQuestions[N]) =>
    (await link.ask(name, body, ANSWER_MS)) as RuntimeAnswers[N];

/** Returns the agent's pod network. `attached`: the addresses of the pods that the runtime finds. */
function remoteNetwork(
  ask: Ask,
  view: NodeView,
  attached: Readonly<Record<string, readonly string[]>>,
): PodNetwork {
  const known = new Map(Object.entries(attached));
  return {
    async attach({ uid, namespace, name, hostPorts = [] }, { pid }) {
      const { ips, surroundings } = await ask('attach', { uid, namespace, name, hostPorts, pid });
      view.surroundings = surroundings;
      known.set(uid, ips);
      return { ips };
    },
    async detach(uid) {
      await ask('detach', { uid });
      known.delete(uid);
    },
    addresses(uid) {
      const ips = known.get(uid);
      return ips ? [...ips] : null;
    },
    async collect(keep) {
      const { gone } = await ask('collect', { keep: [...keep] });
      for (const uid of gone) known.delete(uid);
      return gone;
    },
  };
}
