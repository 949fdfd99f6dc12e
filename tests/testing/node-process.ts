import { join } from 'node:path';
import { ownAllocatable } from '../../src/agent/pods-part.ts';
import { createClient } from '../../src/kube/client.ts';
import { extendedResources } from '../../src/kube/extended-resources.ts';
import { startInformer } from '../../src/kube/informer.ts';
import { httpTransport } from '../../src/kube/transport.ts';
import { RESOURCES } from '../../src/kube/types.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { silentLogger } from '../../src/lib/log.ts';
import { NodeNetwork } from '../../src/network/node-network.ts';
import { openPodNetwork } from '../../src/network/pod-network.ts';
import { startKubelet } from '../../src/runtime/kubelet.ts';

/** The options of a test's node process, as JSON in its last argument. */
export interface NodeProcessInput {
  readonly nodeName: string;
  readonly addresses: readonly string[];
  readonly podCidrs: readonly string[];
  readonly stateDir: string;
  readonly cgroupParent: string;
  readonly server: string;
  readonly ca: string;
  readonly client: { readonly cert: string; readonly key: string };
  readonly serving: { readonly cert: string; readonly key: string };
}

// A process that runs the pods of one node, started in the node's network namespace; tests may kill it.
const input = JSON.parse(process.argv.at(-1) ?? '{}') as NodeProcessInput;
const logger = {
  ...silentLogger,
  warn: (fields: object, message: string) => console.error('warn', message, JSON.stringify(fields)),
  error: (fields: object, message: string) => console.error('error', message, JSON.stringify(fields)),
  child: () => logger,
};
const network = new NodeNetwork({
  node: input.nodeName,
  addresses: input.addresses,
  podCidrs: input.podCidrs,
  overlay: 'routes',
  serviceCidrs: ['10.96.0.0/16'],
});
const client = createClient(httpTransport({ server: input.server, ca: input.ca, ...input.client }), 'test');
const { signal } = new AbortController();
const common = { client, logger, clock: systemClock, random: Math.random, signal };
const nodes = startInformer({ resource: RESOURCES.nodes, ...common });
const allocatable = ownAllocatable(client, nodes, input.nodeName);
const kubelet = await startKubelet({
  ...common,
  extendedResources: { ...allocatable, current: () => extendedResources(allocatable.current()) },
  nodeName: input.nodeName,
  nodeAddresses: input.addresses,
  stateDir: input.stateDir,
  cgroupParent: input.cgroupParent,
  maxPods: 250,
  network: openPodNetwork({ network, stateDir: input.stateDir }),
  clusterDns: ['10.96.0.10'],
  clusterDomain: 'cluster.local',
  apiService: { host: '10.96.0.1', port: 443 },
  // Node.js at the path that containers see, regardless of its path on this machine.
  builtinImages: {
    node: { mounts: [{ source: process.execPath, destination: '/usr/local/bin/test-node', readonly: true }] },
  },
  images: { folder: join(input.stateDir, 'images'), plainHttp: [] },
  server: { port: 10250, ...input.serving, clientCa: input.ca },
  version: 'v1.36.0',
  flags: {},
  startedAt: systemClock.now(),
});
await kubelet.ready;
process.send?.('ready');
