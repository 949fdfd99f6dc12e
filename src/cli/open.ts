import { once } from 'node:events';
import { type LoopbackListeners, listenOnLoopback } from '../cluster/loopback-listeners.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { type PassedListener, passedListener } from '../cluster/rootless/passed-listeners.ts';
import { followService, forwardToService } from '../cluster/service-forwarding.ts';
import {
  parseLocalPort,
  parseServicePort,
  routeToService,
  type ServicePort,
  servicePortText,
  similarService,
} from '../cluster/service-port.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { isRunning } from '../kernel/process-identity.ts';
import { type Client, createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { nodeNetns } from '../network/topology.ts';
import { defineCommand } from './command.ts';
import { shutdownSignal } from './logging.ts';
import { NAME_OPTION } from './name-option.ts';

const FIRST_UNPRIVILEGED_PORT = 1024;
/** The sockets that an ordinary user's command opens before it enters the user's namespaces. */
const PASSED = 0;

export const command = defineCommand({
  name: 'open',
  summary: 'forward a port of this machine to a Service, until Ctrl-C',
  description: [
    "Listens on 127.0.0.1 and ::1 of this machine, and carries each TCP connection through the network of a node to the Service's cluster IP, where the node's proxy rules apply, until Ctrl-C. To keep a port open as long as the cluster runs: fairlead up --publish.",
  ],
  arguments: [
    {
      name: 'svc/NAME[:PORT]',
      help: 'a Service: svc/NAME, svc/NAMESPACE/NAME or NAMESPACE/NAME; its port as a number or name (default: its only TCP port)',
    },
    {
      name: 'LOCALPORT',
      optional: true,
      help: "the port of this machine; default: the Service's port if it is free and at least 1024, otherwise any free port",
    },
  ],
  options: { name: NAME_OPTION },
  examples: ['open svc/hello', 'open svc/shop/web:http 8080'],
  asUser: ({ options, args: [text = '', local] }) => ({
    cluster: options.name,
    listen: () => listenOutside(options.name, text, local),
  }),
  async run({ options, args: [text = '', local] }, output) {
    const service = parseServicePort(text);
    const localPort = local === undefined ? null : parseLocalPort(local);
    requireOwner('open', options.name);
    const state = requireCluster(options.name);
    if (!isRunning(state.controlPlane)) {
      throw new FairleadError(`the control plane of cluster ${state.name} is not running`, {
        op: 'fairlead open',
        code: 'not-running',
        hint: `fairlead status --name ${state.name}`,
      });
    }
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    try {
      const client = createClient(transport, 'fairlead-open');
      const { port } = await findRoute(client, service);
      const listeners = passedListener(PASSED) ?? listen(localPort, port);
      const signal = shutdownSignal();
      const followed = followService(service, {
        client,
        clock: systemClock,
        random: Math.random,
        logger: silentLogger,
        signal,
      });
      await followed.synced.catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
      const forwarding = forwardToService({
        listeners,
        service,
        route: followed.route,
        nodes: () => state.nodes.map(({ name }) => ({ name, netns: nodeNetns(state.name, name) })),
        clock: systemClock,
        onFailure: (failure) => output.err(`fairlead: ${failure}\n`),
      });
      output.out(`127.0.0.1:${listeners.port} → ${servicePortText({ ...service, port })}\n`);
      output.err('Ctrl-C closes the port\n');
      if (!signal.aborted) await once(signal, 'abort');
      forwarding.close();
      return 0;
    } finally {
      transport.close();
    }
  },
});

/** Opens the local port outside of the user's namespaces: see `listen`. */
async function listenOutside(
  cluster: string,
  text: string,
  local: string | undefined,
): Promise<readonly PassedListener[]> {
  const service = parseServicePort(text);
  const localPort = local === undefined ? null : parseLocalPort(local);
  if (!isRunning(requireCluster(cluster).controlPlane)) return [];
  const transport = httpTransport(readKubeconfig(clusterPaths(cluster).kubeconfig));
  try {
    const { port } = await findRoute(createClient(transport, 'fairlead-open'), service);
    return [{ wanted: PASSED, ...listen(localPort, port) }];
  } finally {
    transport.close();
  }
}

/** Returns the route to the Service. Throws FairleadError, which suggests a similar name. */
async function findRoute(client: Client, wanted: ServicePort): Promise<{ readonly port: number }> {
  const { items } = await client.list(RESOURCES.services);
  const service = items.find(
    ({ metadata }) => metadata?.namespace === wanted.namespace && metadata.name === wanted.name,
  );
  const hint = service ? null : similarService(wanted, items);
  if (hint !== null) {
    throw new FairleadError(`no such Service: ${wanted.namespace}/${wanted.name}`, {
      op: 'fairlead open',
      code: 'not-found',
      hint,
    });
  }
  return routeToService(wanted, service, []);
}

function listen(localPort: number | null, servicePort: number): LoopbackListeners {
  if (localPort !== null) return listenOnLoopback(localPort);
  if (servicePort < FIRST_UNPRIVILEGED_PORT) return listenOnLoopback(0);
  try {
    return listenOnLoopback(servicePort);
  } catch (error) {
    if (!hasCode(error, 'EADDRINUSE')) throw error;
    return listenOnLoopback(0);
  }
}
