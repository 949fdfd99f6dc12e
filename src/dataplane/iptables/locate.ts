import { hostPort } from '../../lib/address.ts';
import type { Frontend, Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import { portName } from '../rules/frontend-keys.ts';
import { namedEndpoints } from '../rules/steps.ts';
import { CHAIN } from './chain-names.ts';
import { dispatchKey } from './dispatch-tree.ts';
import type { Ruleset } from './ruleset.ts';
import { endpointChain, entryTree, poolChain, refusalTree } from './service-chains.ts';

/** Lists the chains that a packet to a frontend passes, in order, with the probability of each endpoint. */
export function locateSteps(frontend: Frontend, packet: Packet, ruleset: Ruleset): readonly KernelStep[] {
  const tool = frontend.family === 'ipv4' ? 'iptables' : 'ip6tables';
  const chain = (table: string, name: string) => `${tool} -t ${table} chain ${name}`;
  const key = dispatchKey(frontend.address, frontend.protocol, frontend.port);
  const name = portName(frontend.owner);
  const steps: KernelStep[] = [];
  const route = frontend.routes[packet.sourceClass];

  const dispatch = ruleset.locate(entryTree(frontend), key);
  const first = packet.sourceClass === 'node' ? 'OUTPUT' : 'PREROUTING';
  steps.push({ object: chain('nat', first), effect: `jumps to ${CHAIN.services}` });
  if (frontend.address === null) {
    steps.push({
      object: chain('nat', CHAIN.services),
      effect: `destination is this node: ${CHAIN.nodePorts}`,
    });
  }
  if (dispatch) {
    steps.push({
      object: chain('nat', dispatch.chains.at(-1) ?? ''),
      effect: `found through ${dispatch.chains.join(' → ')}: ${dispatch.rules.join('; ')}`,
    });
  }
  if (route.action !== 'forward') {
    const refusal = ruleset.locate(refusalTree(frontend), key);
    steps.push({
      object: chain('filter', refusal?.chains.at(-1) ?? CHAIN.services),
      effect: `${route.action}: ${route.reason} (${refusal?.rules.join('; ') ?? ''})`,
    });
    return steps;
  }
  const { firewall, classes } = ruleset.chainsOf(frontend);
  if (firewall !== null) {
    steps.push({
      object: chain('nat', firewall),
      effect: 'accepts allowed sources; all others are dropped in filter KUBE-PROXY-FIREWALL',
    });
  }
  if (classes !== null) {
    steps.push({
      object: chain('nat', classes),
      effect: `${packet.sourceClass} traffic${route.masquerade ? ' is marked for masquerading and' : ''} is forwarded to the endpoints`,
    });
  }
  const { endpoints } = route.pool;
  const { affinitySeconds } = frontend;
  const affinity = affinitySeconds === null ? '' : `; session affinity for ${affinitySeconds} s`;
  steps.push({
    object: chain('nat', poolChain(frontend.owner, route.pool)),
    effect: `picks one of ${endpoints.length} endpoints of ${name}, each with probability 1/${endpoints.length}: ${namedEndpoints(endpoints)}${affinity}`,
    to: endpoints,
  });
  for (const endpoint of affinitySeconds === null ? [] : endpoints) {
    steps.push({
      object: chain('nat', endpointChain(frontend.owner, endpoint)),
      effect: `the client is remembered, and the destination rewritten to ${hostPort(endpoint)}`,
      to: [endpoint],
    });
  }
  const itself = endpoints.some(({ ip }) => ip === packet.source)
    ? ruleset.locate('hairpin', dispatchKey(packet.source))
    : null;
  if (itself) {
    steps.push({
      object: chain('nat', itself.chains.at(-1) ?? ''),
      effect: `if the client itself was picked, it is marked for masquerading: ${itself.rules.join('; ')}`,
    });
  }
  if (route.masquerade) {
    steps.push({
      object: chain('nat', CHAIN.postrouting),
      effect: "source is rewritten to this node's address",
    });
  }
  return steps;
}
