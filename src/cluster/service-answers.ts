import { Socket } from 'node:net';
import { openTcpIn } from '../kernel/netns.ts';
import type { Client } from '../kube/client.ts';
import { FairleadError } from '../lib/errors.ts';
import { nodeNetns } from '../network/topology.ts';
import type { ManifestObject } from './manifests.ts';
import type { ClusterState } from './state.ts';

/** Waits until every TCP port of the manifests' Services with pods accepts a connection from every node. */
export async function servicesAnswer(
  client: Client,
  state: ClusterState,
  manifests: readonly ManifestObject[],
  deadline: AbortSignal,
): Promise<string[]> {
  const services = manifests.filter((entry) => entry.kind?.kind === 'Service');
  const shown: string[] = [];
  await Promise.all(
    services.map(async (entry) => {
      const service = (await client.request(
        'GET',
        `/api/v1/namespaces/${entry.namespace}/services/${entry.name}`,
      )) as {
        spec?: { clusterIPs?: string[]; selector?: unknown; ports?: { port: number; protocol?: string }[] };
      };
      const addresses = (service.spec?.clusterIPs ?? []).filter((ip) => ip !== 'None' && ip !== '');
      const ports = (service.spec?.ports ?? []).filter((port) => (port.protocol ?? 'TCP') === 'TCP');
      if (!service.spec?.selector || addresses.length === 0) return;
      await Promise.all(
        state.nodes.flatMap((node) =>
          addresses.flatMap((address) =>
            ports.map(({ port }) => connectFrom(nodeNetns(state.name, node.name), address, port, deadline)),
          ),
        ),
      );
      shown.push(`${entry.name} ${addresses.join(' ')}`);
    }),
  );
  return shown;
}

async function connectFrom(
  netns: string,
  address: string,
  port: number,
  deadline: AbortSignal,
): Promise<void> {
  while (!deadline.aborted) {
    const connected = await new Promise<boolean>((resolve) => {
      const socket = new Socket({ fd: openTcpIn(netns, address.includes(':') ? 'ipv6' : 'ipv4') });
      const finish = (ok: boolean) => {
        socket.destroy();
        resolve(ok);
      };
      socket.setTimeout(500, () => finish(false));
      socket.on('connect', () => finish(true)).on('error', () => finish(false));
      socket.connect(port, address);
    });
    if (connected) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new FairleadError(`${address} port ${port} does not answer from ${netns}`, {
    op: 'fairlead up',
    code: 'not-ready',
    hint: 'fairlead status',
  });
}
