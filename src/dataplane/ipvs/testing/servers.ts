import type { Topology } from '../../testing/topology.ts';

/**
 * A virtual server as printed by `ipvsadm -Ln`: with its options, and real servers with weight and
 * connections.
 */
export interface ListedServer {
  readonly name: string;
  readonly scheduler: string;
  readonly options: string;
  readonly reals: ReadonlyMap<string, { readonly weight: number; readonly connections: number }>;
}

export function listServers(topology: Topology): Map<string, ListedServer> {
  const servers = new Map<string, ListedServer>();
  let reals = new Map<string, { weight: number; connections: number }>();
  for (const line of topology.run('node', 'ipvsadm', '-Ln').split('\n').slice(3)) {
    const real = /^ {2}-> (\S+)\s+Masq\s+(\d+)\s+(\d+)\s+(\d+)/.exec(line);
    if (real) {
      const [, address = '', weight, active, inactive] = real;
      reals.set(address, { weight: Number(weight), connections: Number(active) + Number(inactive) });
      continue;
    }
    const server = /^(TCP|UDP|SCTP|FWM) +(\S+?)(?: IPv6)? (\w+) ?(.*)$/.exec(line);
    if (!server) continue;
    const [, protocol, address, scheduler = '', options = ''] = server;
    reals = new Map();
    const name = `${protocol} ${address}`;
    servers.set(name, { name, scheduler, options: options.trim(), reals });
  }
  return servers;
}
