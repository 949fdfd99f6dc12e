import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createApiServer } from '../apiserver/api-server.ts';
import { KINDS } from '../apiserver/kinds.ts';
import { matchInLinearTime } from '../apiserver/linear-regexp.ts';
import { createSchemaService } from '../apiserver/schema/service.ts';
import { createTableService } from '../apiserver/tables/tables.ts';
import { relayToApi } from '../cluster/api-relay.ts';
import { commandPaths } from '../cluster/command-paths.ts';
import type { RealControlPlane } from '../cluster/control-plane-programs.ts';
import { followPodRoutes } from '../cluster/control-plane-routes.ts';
import { clusterAuthority } from '../cluster/credentials.ts';
import { maxPodsOf, nodePrefixes } from '../cluster/plan.ts';
import { runBesideControlPlane } from '../cluster/real-control-plane.ts';
import { type ClusterState, clusterPaths, markReady, requireCluster } from '../cluster/state.ts';
import type { ControllerOptions } from '../controllers/context.ts';
import { startControllers } from '../controllers/start.ts';
import { LOCAL_PATH, type LocalVolumes } from '../controllers/storage/provisioning.ts';
import { GATEWAY_READS } from '../gateway/node-reads.ts';
import { INGRESS_CONTROLLER } from '../gateway/objects.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { systemClock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text, wholeNumber } from './options.ts';
import { KUBERNETES_VERSION } from './version.ts';

/** The first listener that the parent process opened and passed on. */
const FIRST_LISTENER_FD = 3;

export const command = defineCommand({
  name: 'control-plane',
  summary: '',
  description: [
    'Runs the API server and controllers of a local cluster, or what a real control plane leaves to others; started by its supervisor. The listening sockets are N inherited descriptors, starting with number 3.',
  ],
  arguments: [],
  options: {
    name: text('NAME', 'the cluster'),
    listeners: wholeNumber('N', [0, 0, 16], 'number of inherited listeners'),
  },
  async run({ options }) {
    const state = requireCluster(options.name ?? '');
    const logger = createLogger('control-plane');
    exitOnUnhandled(logger);
    const signal = shutdownSignal();
    const { realControlPlane } = state;
    if (realControlPlane)
      await besideRealControlPlane(state, realControlPlane, options.listeners, logger, signal);
    else await embeddedControlPlane(state, options.listeners, logger, signal);
    return 0;
  },
});

/** Serves the API, and runs the controllers, until the signal aborts. */
async function embeddedControlPlane(
  state: ClusterState,
  listeners: number,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  const paths = clusterPaths(state.name);
  const pem = pemReader(state);
  const ca = pem('ca.crt');
  // Under another flag of V8, Node.js compiles its modules without its kept code: these take 30 ms.
  for (const module of ['node:https', 'node:http2', 'node:sqlite']) process.getBuiltinModule(module);
  matchInLinearTime();
  const server = createApiServer({
    dataFile: paths.data,
    serviceCidrs: state.serviceCidrs,
    storageProvisioner: LOCAL_PATH,
    ingressController: INGRESS_CONTROLLER,
    sharedReads: GATEWAY_READS,
    nodePorts: { first: 30000, last: 32767 },
    advertise: { addresses: state.controlPlaneAddresses, port: state.apiPort },
    tls: { cert: pem('apiserver.crt'), key: pem('apiserver.key'), clientCa: ca },
    nodeTls: { cert: pem('apiserver.crt'), key: pem('apiserver.key'), ca },
    tokenKey: pem('service-account.key'),
    mountTokens: true,
    authorization: state.authorization,
    tokenIssuer: `https://kubernetes.default.svc.${state.clusterDomain}`,
    schema: createSchemaService({ kinds: KINDS }),
    tables: createTableService(),
    version: KUBERNETES_VERSION,
    furtherPaths: commandPaths(state.name, () => client),
    clock: systemClock,
    random: Math.random,
    logger,
  });
  const client = createClient(server.transport, 'fairlead-controllers');
  await server.listen(Array.from({ length: listeners }, (_, i) => ({ fd: FIRST_LISTENER_FD + i })));
  logger.info({ port: state.apiPort }, 'API server is listening');
  followPodRoutes({ client, clock: systemClock, random: Math.random, logger, signal });
  const controllers = startControllers({
    client,
    clock: systemClock,
    random: Math.random,
    logger,
    signal,
    options: controllerOptions(state),
  });
  report(controllers.ready, logger, signal);
  if (!signal.aborted) await once(signal, 'abort');
  await server.close();
}

/** Relays the machine's connections to a real API server, and does what its programs leave to others. */
async function besideRealControlPlane(
  state: ClusterState,
  realControlPlane: RealControlPlane,
  listeners: number,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  const paths = clusterPaths(state.name);
  const relays = Array.from({ length: listeners }, (_, i) =>
    relayToApi(FIRST_LISTENER_FD + i, state.apiPort, logger),
  );
  const transport = httpTransport(readKubeconfig(paths.kubeconfig));
  const running = runBesideControlPlane({
    client: createClient(transport, 'fairlead-controllers'),
    transport,
    clock: systemClock,
    random: Math.random,
    logger,
    signal,
    options: controllerOptions(state),
    realControlPlane,
    onReady() {
      logger.info({ version: realControlPlane.version }, 'kube-apiserver is ready');
      markReady(paths.root, logger);
    },
  });
  report(running, logger, signal);
  if (!signal.aborted) await once(signal, 'abort');
  for (const connections of relays) connections.close();
  transport.close();
}

function controllerOptions(state: ClusterState): ControllerOptions {
  return {
    clusterCidrs: state.podCidrs,
    nodeMaskSizes: nodePrefixes(maxPodsOf(state)),
    caBundle: pemReader(state)('ca.crt'),
    certificateSigner: clusterAuthority(state).sign,
    localVolumes: localVolumes(clusterPaths(state.name).volumes),
    loadBalancerPools: state.loadBalancerPools,
  };
}

const pemReader =
  ({ name }: ClusterState) =>
  (file: string): string =>
    readFileSync(join(clusterPaths(name).pki, file), 'utf8');

/** Logs that the controllers run, or ends this process if they cannot. */
function report(ready: Promise<void>, logger: Logger, signal: AbortSignal): void {
  ready.then(
    () => logger.info({}, 'controllers are running'),
    (error: unknown) => {
      if (!signal.aborted) throw error;
    },
  );
}

/** Provides volumes as folders below `root`, on the disk that the cluster's nodes share. */
function localVolumes(root: string): LocalVolumes {
  return {
    pathOf: (volume) => join(root, volume),
    async create(path) {
      await mkdir(path, { recursive: true });
      // Pods run as any user.
      await chmod(path, 0o777);
    },
    remove: (path) => rm(path, { recursive: true, force: true }),
  };
}
