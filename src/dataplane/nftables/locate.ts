import type { Frontend, Packet } from '../../service/model.ts';
import type { KernelStep } from '../dataplane.ts';
import { keyingOf, verdictText } from './entries.ts';
import type { FamilyTable } from './family-table.ts';
import { endpointMap, frontendMap, pickChain } from './layout.ts';

/** The chains and elements that a frontend's packet meets, in order. */
export function locateSteps(table: FamilyTable, frontend: Frontend, packet: Packet): KernelStep[] {
  const family = table.family === 'ipv4' ? 'ip' : 'ip6';
  const at = (what: string) => `nft: table ${family} ${table.name}, ${what}`;
  const protocol = frontend.protocol.toLowerCase();
  const key =
    frontend.address === null
      ? `${protocol} . ${frontend.port}`
      : `${frontend.address} . ${protocol} . ${frontend.port}`;
  const entries = table.entries(frontend.key);
  const entry =
    entries.find(({ scope }) => scope === packet.sourceClass) ?? entries.find(({ scope }) => scope === 'any');
  const hook = packet.sourceClass === 'node' ? 'output' : 'prerouting';
  const steps: KernelStep[] = [];
  if (frontend.allowedSources) {
    steps.push({
      object: at(
        `set allowed-sources, elements ${key} . ${frontend.allowedSources.map(({ text }) => text).join(', ')}`,
      ),
      effect: 'other sources are dropped',
    });
  }
  if (!entry) return steps;
  steps.push({
    object: at(
      `chain ${hook} → chain from-${packet.sourceClass}, map ${frontendMap(keyingOf(frontend), entry.scope)}, element ${key}`,
    ),
    effect: verdictText(entry),
  });
  const { pick } = entry;
  if (!pick) return steps;
  if (pick.masquerade !== 'none') {
    steps.push({
      object: at(`chain ${pickChain(pick)}`),
      effect: `${pick.masquerade === 'nonpod' ? 'packets of others than pods are' : 'every packet is'} marked for masquerading`,
    });
  }
  if (pick.sticky) {
    steps.push({
      object: at(
        `map affinity, element ${packet.source} . ${packet.destination} . ${protocol} . ${frontend.port}`,
      ),
      effect: `a client of the last ${frontend.affinitySeconds} s goes to the endpoint of then`,
    });
  }
  steps.push({
    object: at(
      `chain ${pickChain({ ...pick, masquerade: 'none', sticky: false })}, map ${endpointMap(pick)}, elements ${key} . 0 to ${entry.slots.length - 1}`,
    ),
    effect: `one of ${entry.slots.length} at random: ${entry.slots
      .slice(0, 8)
      .map(({ ip, port }) => (ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`))
      .join(', ')}${entry.slots.length > 8 ? ', …' : ''}`,
  });
  return steps;
}
