import type { Frontend, Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import { namedEndpoints } from '../rules/steps.ts';
import type { ForwardingTable } from './forwarding-table.ts';
import { ACTION } from './generated/layout.ts';

/** Describes the actions of the programs for a socket that opens such a flow; empty if they leave it to nf_tables. */
export function locateSteps(table: ForwardingTable, frontend: Frontend, packet: Packet): KernelStep[] {
  const entry = table.get(frontend.key);
  if (!entry || packet.sourceClass === 'external') return [];
  const { protocol, family, address, port, affinitySeconds, options } = frontend;
  const { entry: route, placed } = packet.sourceClass === 'pod' ? entry.pod : entry.node;
  const hook = `${protocol === 'UDP' ? 'connect/sendmsg' : 'connect'}${family === 'ipv4' ? 4 : 6}`;
  const object = `bpf: program ${hook}, map fl_frontends, key ${address} port ${port} protocol ${protocol}`;
  if (route.action === ACTION.REFUSE)
    return protocol === 'TCP' ? [{ object, effect: 'the call fails with ECONNREFUSED' }] : [];
  if (route.action !== ACTION.FORWARD) return [];
  const endpoints = placed?.endpoints ?? [];
  return [
    { object, effect: `${route.count} slots from ${route.first}, before any packet is sent` },
    ...(affinitySeconds === null
      ? []
      : [
          {
            object: `bpf: map fl_affinities, frontend ${entry.id}`,
            effect: `a client seen within the last ${affinitySeconds} s returns to the same endpoint`,
          },
        ]),
    {
      object: `bpf: map fl_endpoints, slots ${route.first} to ${route.first + route.count - 1}`,
      effect: `one of ${endpoints.length} (${options.balance}): ${namedEndpoints(endpoints)}; nf_tables sees a flow to the endpoint itself`,
      to: endpoints,
    },
  ];
}
