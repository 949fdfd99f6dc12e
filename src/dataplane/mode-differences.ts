import type { Frontend } from '../service/model.ts';
import type { Mode } from './dataplane.ts';

/** A behaviour that differs between modes, by nature or as in kube-proxy's mode of the same name. */
export type DifferenceId =
  | 'server-sees-node'
  | 'other-nodes-pods-are-outside'
  | 'hairpin-keeps-source'
  | 'no-sctp'
  | 'node-ports-on-primary-addresses';

export interface ModeDifference {
  readonly id: DifferenceId;
  readonly modes: readonly Mode[];
  /** One sentence; docs/modes.md has it word for word. */
  readonly text: string;
}

/** All differences between the modes that a client or a server can observe. */
export const MODE_DIFFERENCES: readonly ModeDifference[] = [
  {
    id: 'server-sees-node',
    modes: ['userspace'],
    text: "The server sees the node's address instead of the client's, since its connection comes from the proxy.",
  },
  {
    id: 'other-nodes-pods-are-outside',
    modes: ['userspace'],
    text: 'For the node ports and external addresses of a node, pods of other nodes are clients outside the cluster: externalTrafficPolicy Local applies to them too. In the other modes, replies to such pods are lost.',
  },
  {
    id: 'no-sctp',
    modes: ['userspace'],
    text: 'SCTP is not supported: SCTP ports are left out, and an event on the Service reports it.',
  },
  {
    id: 'hairpin-keeps-source',
    modes: ['ebpf'],
    text: 'A pod that reaches itself through its own Service sees itself as the client.',
  },
  {
    id: 'node-ports-on-primary-addresses',
    modes: ['nftables', 'ebpf'],
    text: "Without nodePortAddresses, node ports answer only on the node's primary addresses; in the other modes they answer on all addresses.",
  },
];

/** Returns true if a mode has this difference. */
export function modeDiffers(mode: Mode, id: DifferenceId): boolean {
  return MODE_DIFFERENCES.some((one) => one.id === id && one.modes.includes(mode));
}

/** Returns the sentence that describes a difference. */
export function differenceText(id: DifferenceId): string {
  return MODE_DIFFERENCES.find((one) => one.id === id)?.text ?? id;
}

/**
 * Returns true if eBPF mode may forward flows to a frontend at the client's socket. Frontends with source
 * ranges, node ports (which answer on the node's addresses) and SCTP, which the hooks do not see, are left
 * to nf_tables.
 */
export function mayForwardAtSocket({ address, allowedSources, protocol }: Frontend): boolean {
  return address !== null && allowedSources === null && protocol !== 'SCTP';
}
