import type { Frontend, Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import type { Keying } from '../nf-matches.ts';
import { hostPort } from './balancer.ts';
import type { ProgrammedFrontend } from './elements.ts';
import { listenerMap, refusalMap, TABLE } from './layout.ts';
import type { PoolListener } from './pool-listeners.ts';

/** How many endpoints a step names. */
const NAMED = 8;

/** The set elements and the listener that a frontend's packet meets, in order. */
export function locateSteps(
  { frontend, targets }: ProgrammedFrontend,
  packet: Packet,
  listenerOf: (pool: string) => PoolListener | undefined,
): KernelStep[] {
  const { sourceClass: source } = packet;
  const at = (what: string) => `nft: table ${frontend.family === 'ipv4' ? 'ip' : 'ip6'} ${TABLE}, ${what}`;
  const keying: Keying = frontend.address === null ? 'port' : 'address';
  const key = `${frontend.address === null ? '' : `${frontend.address} . `}${frontend.protocol.toLowerCase()} . ${frontend.port}`;
  const steps: KernelStep[] = [];
  if (frontend.allowedSources) {
    const ranges = frontend.allowedSources.map(({ text }) => text).join(', ');
    steps.push({
      object: at(`set allowed-sources, elements ${key} . ${ranges === '' ? '(none)' : ranges}`),
      effect: 'other sources are dropped',
    });
  }
  const chain = `chain ${source === 'node' ? 'output' : 'prerouting'} → chain ${keying === 'port' ? 'node-ports-' : ''}from-${source}`;
  const target = targets[source];
  if (typeof target === 'string') {
    const effect = target === 'drop' ? 'drop' : 'goto reject';
    steps.push({ object: at(`${chain}, map ${refusalMap(keying, source)}, element ${key}`), effect });
    return steps;
  }
  const where = hostPort({ ip: target.address, port: target.port });
  steps.push({
    object: at(`${chain}, map ${listenerMap(keying, source)}, element ${key}`),
    effect: `redirected to ${where}`,
  });
  const route = frontend.routes[source];
  if (route.action === 'forward') steps.push(listenerStep(frontend, route.pool.id, where, listenerOf));
  return steps;
}

function listenerStep(
  frontend: Frontend,
  pool: string,
  where: string,
  listenerOf: (pool: string) => PoolListener | undefined,
): KernelStep {
  const listener = listenerOf(pool);
  const endpoints = listener?.endpoints ?? [];
  const names = endpoints.slice(0, NAMED).map(hostPort).join(', ');
  const affinity =
    frontend.affinitySeconds === null
      ? ''
      : `; a client of the last ${frontend.affinitySeconds} s goes to its endpoint of then`;
  return {
    object: `fairlead: listener ${frontend.protocol.toLowerCase()} ${where} of pool ${pool}, process ${process.pid}`,
    effect: `a connection of the node's own goes to one of ${endpoints.length} in turn, to the next when one fails: ${names}${endpoints.length > NAMED ? ', …' : ''}${affinity}`,
  };
}
