import { networkInterfaces } from 'node:os';
import { cidrContains, familyOf, type IPFamily } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { HealthCheck, NodeView } from '../service/model.ts';
import { createOneRequestServer, type OneRequestServer } from './one-request-server.ts';

export interface HealthCheckServersOptions {
  readonly logger: Logger;
  /** Returns false while the node's rules are out of date: load balancers should then use other nodes. */
  readonly isProxyHealthy: () => boolean;
  /** Called when a port could not be opened; once per Service and port. */
  readonly onFailure: (check: HealthCheck, error: Error) => void;
}

/**
 * Serves each Service's `healthCheckNodePort`, by which cloud load balancers detect nodes with local endpoints (any
 * path; 200 or 503; upstream's JSON body and headers).
 */
export interface HealthCheckServers {
  /** Opens and closes ports to match these. Ports that could not be opened are retried at each call. */
  update(checks: ReadonlyMap<string, HealthCheck>, node: NodeView): void;
  close(): void;
}

interface Running {
  check: HealthCheck;
  readonly addresses: string;
  readonly servers: readonly OneRequestServer[];
  failed: boolean;
}

export function createHealthCheckServers(options: HealthCheckServersOptions): HealthCheckServers {
  const running = new Map<string, Running>();
  const reported = new Set<string>();

  const start = (key: string, check: HealthCheck, addresses: readonly string[]): void => {
    const servers = addresses.map((address) => {
      const opened = createOneRequestServer(() => {
        const current = running.get(key)?.check ?? check;
        const healthy = options.isProxyHealthy();
        const body = JSON.stringify({
          service: { namespace: current.namespace, name: current.name },
          localEndpoints: current.localEndpoints,
          serviceProxyHealthy: healthy,
        });
        return {
          code: current.localEndpoints > 0 && healthy ? 200 : 503,
          headers: {
            'content-type': 'application/json',
            'x-content-type-options': 'nosniff',
            'x-load-balancing-endpoint-weight': String(current.localEndpoints),
          },
          body,
        };
      });
      const { server } = opened;
      server.on('error', (error) => {
        entry.failed = true;
        options.logger.error(
          { service: key, port: check.port, address },
          `failed to open a health check port: ${messageOf(error)}`,
        );
        if (reported.has(`${key} ${check.port}`)) return;
        reported.add(`${key} ${check.port}`);
        options.onFailure(check, error);
      });
      server.listen({ host: address, port: check.port, ipv6Only: address.includes(':') });
      // Health check servers do not keep this process alive.
      server.unref();
      return opened;
    });
    const entry: Running = { check, addresses: addresses.join(' '), servers, failed: false };
    running.set(key, entry);
  };
  const stop = (key: string): void => {
    for (const server of running.get(key)?.servers ?? []) {
      server.close();
    }
    running.delete(key);
  };

  return {
    update(checks, node) {
      const addresses = checks.size > 0 || running.size > 0 ? listenAddresses(node) : [];
      for (const [key, { check, addresses: before, failed }] of running) {
        const wanted = checks.get(key);
        if (wanted?.port !== check.port || before !== addresses.join(' ') || failed) stop(key);
      }
      for (const [key, check] of checks) {
        const entry = running.get(key);
        if (entry) entry.check = check;
        else start(key, check, addresses);
      }
    },
    close() {
      for (const key of [...running.keys()]) stop(key);
    },
  };
}

/** Returns the addresses of node ports: all, or this node's addresses inside the configured networks. */
function listenAddresses(node: NodeView): string[] {
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  const families: [IPFamily, string][] = [
    ['ipv4', '0.0.0.0'],
    ['ipv6', '::'],
  ];
  return families.flatMap(([family, any]) => {
    if (node[family] === null) return [];
    const selected = node.nodePortAddresses[family];
    if (selected.all) return [any];
    return own
      .map(({ address }) => address)
      .filter((address) => familyOf(address) === family)
      .filter((address) => selected.cidrs.some((cidr) => cidrContains(cidr, address)));
  });
}
