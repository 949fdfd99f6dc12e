import { describeServer } from '../../kernel/ipvs/codec.ts';
import { hostPort } from '../../lib/address.ts';
import { formatVerdict, tableTitle } from '../../nft/print.ts';
import type { Frontend, Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import { frontendKeyText, keyingOf } from '../rules/frontend-keys.ts';
import { entryFor, frontendMap } from '../rules/pick-chains.ts';
import { namedEndpoints, sourceRangeSteps } from '../rules/steps.ts';
import { ALIAS } from './frontend-plan.ts';
import { markMap, redirectMap, TABLE } from './layout.ts';
import type { Programmed } from './programmed.ts';
import { entriesOf } from './render.ts';
import { INTERFACE } from './service-interface.ts';

/** Returns the kernel objects that a frontend's packet passes, in order. */
export function locateSteps(
  { plans, layouts, bound }: Pick<Programmed, 'plans' | 'layouts' | 'bound'>,
  frontend: Frontend,
  packet: Packet,
): KernelStep[] {
  const { family } = frontend;
  const plan = plans.get(frontend.key);
  if (!plan) return [];
  const { hasPods = false } = layouts.get(family) ?? {};
  const at = (what: string) => `nft: table ${tableTitle(family, TABLE)}, ${what}`;
  const key = frontendKeyText(frontend);
  const steps: KernelStep[] = [];
  if (frontend.address !== null && bound.has(frontend.address)) {
    steps.push({
      object: `ip: address ${frontend.address} of ${INTERFACE}`,
      effect: 'the node accepts the packet, and IPVS processes it',
    });
  }
  steps.push(...sourceRangeSteps(frontend, at));
  const entry = entryFor(entriesOf(plan, hasPods), packet.sourceClass);
  if (!entry) return steps;
  const keying = keyingOf(frontend);
  const hook = packet.sourceClass === 'node' ? 'output' : 'input';
  steps.push({
    object: at(
      `chain ${hook} → chain from-${packet.sourceClass}, map ${frontendMap(keying, entry.sources)}, element ${key}`,
    ),
    effect: EFFECTS[formatVerdict(entry.verdict)] ?? 'the mark of its virtual server is set',
  });
  if (entry.mark !== null) {
    steps.push({
      object: at(`map ${markMap(keying, entry.sources)}, element ${key}`),
      effect: `mark 0x${entry.mark.toString(16)}`,
    });
  }
  const taken = plan.actions[packet.sourceClass];
  if (taken.action === 'reject' || taken.action === 'drop') return steps;
  if (taken.action === 'redirect') {
    const alias = { ip: ALIAS[family], port: taken.port };
    steps.push({
      object: at(
        `chain redirect-from-${packet.sourceClass}, map ${redirectMap(keying, packet.sourceClass)}, element ${key}`,
      ),
      effect: `redirected to ${hostPort(alias)}, the persistent virtual server${taken.masquerade ? ', and masqueraded' : ''}`,
      to: [alias],
    });
  }
  const server = plan.servers.find(({ holder, server: { id } }) => {
    if (taken.action === 'steer') return 'mark' in id && id.mark === taken.mark;
    if (taken.action === 'redirect') return !('mark' in id) && holder !== null && id.port === taken.port;
    return holder === null;
  });
  if (!server) return steps;
  const { id, scheduler, persistenceSeconds } = server.server;
  steps.push({
    object: `ipvsadm: virtual server ${describeServer(id)}`,
    effect: `scheduler ${scheduler}${persistenceSeconds === null ? '' : `, persistent for ${persistenceSeconds} s`}: one of ${server.endpoints.length}: ${namedEndpoints(server.endpoints)}`,
    to: server.endpoints,
  });
  return steps;
}

const EFFECTS: Readonly<Record<string, string>> = {
  accept: 'it is passed to the virtual server unchanged',
  'goto masquerade': 'it is marked for masquerading',
  'goto masquerade-nonpod': 'packets that do not come from pods are marked for masquerading',
  'goto refuse': 'a packet that opens a flow is rejected',
  'goto lose': 'a packet that opens a flow is dropped',
};
