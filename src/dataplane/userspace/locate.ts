import { hostPort } from '../../lib/address.ts';
import { tableTitle } from '../../nft/print.ts';
import type { Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import { frontendKeyText, keyingOf } from '../rules/frontend-keys.ts';
import { namedEndpoints, sourceRangeSteps } from '../rules/steps.ts';
import { listenerMap, refusalMap, TABLE } from './layout.ts';
import type { PoolListener } from './pool-listener.ts';
import type { ProgrammedFrontend } from './render.ts';

/** Returns the set elements and the listener that a frontend's packet matches, in order. */
export function locateSteps(
  { frontend, targets }: ProgrammedFrontend,
  packet: Packet,
  listenerOf: (pool: string) => PoolListener | undefined,
): KernelStep[] {
  const { sourceClass: source } = packet;
  const at = (what: string) => `nft: table ${tableTitle(frontend.family, TABLE)}, ${what}`;
  const keying = keyingOf(frontend);
  const key = frontendKeyText(frontend);
  const steps = sourceRangeSteps(frontend, at);
  const hook = source === 'node' ? 'output' : 'prerouting';
  const chain = `chain ${hook} → chain ${keying === 'port' ? 'node-ports-' : ''}from-${source}`;
  const target = targets[source];
  if (typeof target === 'string') {
    const effect = target === 'drop' ? 'drop' : 'goto reject';
    steps.push({ object: at(`${chain}, map ${refusalMap(keying, source)}, element ${key}`), effect });
    return steps;
  }
  const where = hostPort(target);
  steps.push({
    object: at(`${chain}, map ${listenerMap(keying, source)}, element ${key}`),
    effect: `redirected to ${where}`,
    to: [target],
  });
  const route = frontend.routes[source];
  if (route.action !== 'forward') return steps;
  const endpoints = listenerOf(route.pool.id)?.endpoints ?? [];
  const { affinitySeconds: seconds, protocol } = frontend;
  const affinity = `; a client seen within the last ${seconds} s returns to the same endpoint`;
  steps.push({
    object: `fairlead: listener ${protocol.toLowerCase()} ${where} of pool ${route.pool.id}, process ${process.pid}`,
    effect: `the proxy connects to one of ${endpoints.length} in turn, and to the next if it fails: ${namedEndpoints(endpoints)}${seconds === null ? '' : affinity}`,
    to: endpoints,
  });
  return steps;
}
