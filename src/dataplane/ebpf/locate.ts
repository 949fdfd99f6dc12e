import type { Frontend, Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import type { ForwardingTable } from './forwarding-table.ts';
import { ACTION } from './layout.ts';

/** What the programs do with a socket that opens such a flow; nothing where they leave it to nf_tables. */
export function locateSteps(table: ForwardingTable, frontend: Frontend, packet: Packet): KernelStep[] {
  const entry = table.entry(frontend.key);
  if (!entry || packet.sourceClass === 'external') return [];
  const { entry: route, placed } = packet.sourceClass === 'pod' ? entry.pod : entry.node;
  const hook = `${frontend.protocol === 'UDP' ? 'connect/sendmsg' : 'connect'}${frontend.family === 'ipv4' ? 4 : 6}`;
  const key = `${frontend.address} port ${frontend.port} protocol ${frontend.protocol}`;
  const steps: KernelStep[] = [];
  switch (route.action) {
    case ACTION.refuse:
      return frontend.protocol === 'TCP'
        ? [
            {
              object: `bpf: program ${hook}, map fl_frontends, key ${key}`,
              effect: 'the call fails: ECONNREFUSED',
            },
          ]
        : [];
    case ACTION.forward: {
      steps.push({
        object: `bpf: program ${hook}, map fl_frontends, key ${key}`,
        effect: `${route.count} slots from ${route.first}, before any packet is sent`,
      });
      if (frontend.affinitySeconds !== null) {
        steps.push({
          object: `bpf: map fl_affinities, frontend ${entry.id}`,
          effect: `a client of the last ${frontend.affinitySeconds} s goes to the endpoint of then`,
        });
      }
      const endpoints = placed?.endpoints ?? [];
      steps.push({
        object: `bpf: map fl_endpoints, slots ${route.first} to ${route.first + route.count - 1}`,
        effect: `one of ${endpoints.length} (${frontend.options.balance}): ${endpoints
          .slice(0, 8)
          .map(({ ip, port }) => (ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`))
          .join(
            ', ',
          )}${endpoints.length > 8 ? ', …' : ''}; the node's nftables see a flow to the endpoint itself`,
      });
      return steps;
    }
    default:
      return [];
  }
}
