import type { IPFamily } from '../../lib/address.ts';
import { formatVerdict, tableTitle } from '../../nft/print.ts';
import type { Frontend, Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import { frontendKeyText, keyingOf } from '../rules/frontend-keys.ts';
import { AFFINITY, endpointMap, entryFor, frontendMap, pickChain } from '../rules/pick-chains.ts';
import { namedEndpoints, sourceRangeSteps } from '../rules/steps.ts';
import { entriesOf } from './render.ts';

/** Returns the chains and elements that a frontend's packet matches, in order. */
export function locateSteps(
  family: IPFamily,
  tableName: string,
  hasPods: boolean,
  frontend: Frontend,
  packet: Packet,
): KernelStep[] {
  const at = (what: string) => `nft: table ${tableTitle(family, tableName)}, ${what}`;
  const key = frontendKeyText(frontend);
  const entry = entryFor(entriesOf(frontend, hasPods), packet.sourceClass);
  const hook = packet.sourceClass === 'node' ? 'output' : 'prerouting';
  const steps = sourceRangeSteps(frontend, at);
  if (!entry) return steps;
  const { pick, sources, verdict, endpoints } = entry;
  steps.push({
    object: at(
      `chain ${hook} → chain from-${packet.sourceClass}, map ${frontendMap(keyingOf(frontend), sources)}, element ${key}`,
    ),
    effect: pick
      ? formatVerdict({ goto: pickChain(pick) })
      : verdict === 'drop'
        ? 'drop'
        : formatVerdict({ goto: 'reject' }),
  });
  if (!pick) return steps;
  if (pick.masquerade !== 'none') {
    const which = pick.masquerade === 'nonpod' ? 'packets that do not come from pods are' : 'all packets are';
    steps.push({ object: at(`chain ${pickChain(pick)}`), effect: `${which} marked for masquerading` });
  }
  if (pick.sticky) {
    const client = `${packet.source} . ${packet.destination}`;
    steps.push({
      object: at(
        `map ${AFFINITY}, element ${client} . ${frontend.protocol.toLowerCase()} . ${frontend.port}`,
      ),
      effect: `a client seen within the last ${frontend.affinitySeconds} s returns to the same endpoint`,
    });
  }
  steps.push({
    object: at(
      `chain ${pickChain({ ...pick, masquerade: 'none', sticky: false })}, map ${endpointMap(pick)}, elements ${key} . 0 to ${endpoints.length - 1}`,
    ),
    effect: `one of ${endpoints.length} at random: ${namedEndpoints(endpoints)}`,
    to: endpoints,
  });
  return steps;
}
