import { hash } from 'node:crypto';
import type { LabelSelector, NetworkPolicy } from '../kube/types.ts';
import { keyOf } from '../kube/types.ts';
import { readAddressBlock } from './address-block.ts';
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
 * policyTypes a policy isolates for ingress, and for egress if it has egress rules.
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
  const content = {
    kind: 'NetworkPolicy',
    tier: 'NetworkPolicy',
    priority: 0,
    subject: podGroup(podSelector, namespace),
    ingress: types.includes('Ingress') ? ingress.map(({ from, ports }) => rule(from, ports)) : null,
    egress: types.includes('Egress') ? egress.map(({ to, ports }) => rule(to, ports)) : null,
  } as const;
  const key = keyOf(object);
  const source = [key, podSelector, content.ingress && ingress, content.egress && egress];
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

/** Returns a short hash of a value of JSON, independent of the order of an object's fields. */
export function hashOf(value: unknown): string {
  return hash('sha256', canonical(value), 'hex').slice(0, 12);
}

/** Writes JSON with sorted fields; several times faster than JSON.stringify with a function that sorts them. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((one) => canonical(one ?? null)).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const fields = Object.entries(value)
    .filter(([, field]) => field !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${canonical(field)}`).join(',')}}`;
}
