import { EGRESS_NAMES } from '../kube/egress-names.ts';
import type { LabelSelector, NetworkPolicy } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import { readAddressBlock } from './address-block.ts';
import { egressNameRules } from './egress-names.ts';
import { hashOf } from './json-hash.ts';
import type { PodGroup, Policy, PolicyPeer, PolicyPort, PolicyRule, Protocol } from './model.ts';

interface ApiPeer {
  podSelector?: LabelSelector;
  namespaceSelector?: LabelSelector;
  ipBlock?: { cidr?: string; except?: string[] };
}
interface ApiPort {
  protocol?: string;
  port?: number | string;
  endPort?: number;
}

const MAX_PORT = 65535;

/**
 * Reads a networking.k8s.io/v1 NetworkPolicy. A malformed peer or port allows no traffic. Without
 * policyTypes a policy isolates for ingress, and for egress if it has egress rules. The names of the annotation are rules
 * behind its others; they do not isolate.
 */
export function readPolicy(object: NetworkPolicy): Policy {
  const { namespace = '', name = '' } = object.metadata ?? {};
  const { podSelector = {}, ingress = [], egress = [], policyTypes = [] } = object.spec ?? {};
  const types = policyTypes.length > 0 ? policyTypes : ['Ingress', ...(egress.length > 0 ? ['Egress'] : [])];
  const rule = (peers: ApiPeer[] | undefined, ports: ApiPort[] | undefined): PolicyRule => ({
    action: 'Accept',
    peers: peers && peers.length > 0 ? peers.flatMap((peer) => readPeer(peer, namespace)) : null,
    ports: ports && ports.length > 0 ? ports.flatMap(readPort) : null,
  });
  const names = object.metadata?.annotations?.[EGRESS_NAMES];
  const content = {
    kind: 'NetworkPolicy',
    tier: 'NetworkPolicy',
    priority: 0,
    subject: podGroup(podSelector, namespace),
    ingress: types.includes('Ingress') ? ingress.map(({ from, ports }) => rule(from, ports)) : null,
    egress: types.includes('Egress')
      ? [
          ...egress.map(({ to, ports }) => rule(to, ports)),
          ...(names === undefined ? [] : egressNameRules(names)),
        ]
      : null,
  } as const;
  const key = keyOf(object);
  const source = [key, podSelector, content.ingress && ingress, content.egress && egress];
  if (content.egress && names !== undefined) source.push(names);
  return { key, namespace, name, ...content, hash: hashOf(source) };
}

function readPeer(peer: ApiPeer, namespace: string): PolicyPeer[] {
  const { podSelector, namespaceSelector, ipBlock } = peer;
  if (ipBlock) {
    const block = readAddressBlock(ipBlock.cidr ?? '', ipBlock.except ?? []);
    return block ? [{ kind: 'block', block }] : [];
  }
  if (!podSelector && !namespaceSelector) return [];
  return [{ kind: 'pods', group: podGroup(podSelector ?? {}, namespaceSelector ?? namespace) }];
}

/** Returns the group of the pods that both selectors match; `namespaces`: one namespace, or a selector. */
export function podGroup(pods: LabelSelector, namespaces: string | LabelSelector): PodGroup {
  return { id: hashOf([pods, namespaces]), pods, namespaces };
}

function readPort({ protocol = 'TCP', port, endPort }: ApiPort): PolicyPort[] {
  if (protocol !== 'TCP' && protocol !== 'UDP' && protocol !== 'SCTP') return [];
  if (port === undefined) return [range(protocol, 0, MAX_PORT)];
  if (typeof port === 'string') return [{ kind: 'name', protocol, name: port }];
  const last = endPort ?? port;
  return last < port ? [] : [range(protocol, port, last)];
}

const range = (protocol: Protocol, first: number, last: number): PolicyPort => ({
  kind: 'range',
  protocol,
  first,
  last,
});
