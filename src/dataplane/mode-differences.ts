import type { Mode } from './dataplane.ts';

/** Something that a mode does differently from the others, by its nature or as kube-proxy's mode of that name does. */
export type DifferenceId =
  | 'server-sees-node'
  | 'hairpin-keeps-source'
  | 'no-sctp'
  | 'node-ports-on-primary-addresses';

export interface ModeDifference {
  readonly id: DifferenceId;
  readonly modes: readonly Mode[];
  /** One sentence; docs/modes.md has it word for word. */
  readonly text: string;
}

/** Every way in which the modes differ for a client or a server. */
export const MODE_DIFFERENCES: readonly ModeDifference[] = [
  {
    id: 'server-sees-node',
    modes: ['userspace'],
    text: "The server sees the node's address instead of the client's, since its connection comes from the proxy.",
  },
  {
    id: 'no-sctp',
    modes: ['userspace'],
    text: 'SCTP is not carried: such ports are left out, and an event on the Service says so.',
  },
  {
    id: 'hairpin-keeps-source',
    modes: ['ebpf'],
    text: 'A pod that reaches itself through its own Service sees itself as the client.',
  },
  {
    id: 'node-ports-on-primary-addresses',
    modes: ['nftables', 'ebpf'],
    text: "Without nodePortAddresses, node ports answer on the node's primary addresses alone; in the other modes they answer on all addresses.",
  },
];

/** Whether a mode differs from the others in this way. */
export function modeDiffers(mode: Mode, id: DifferenceId): boolean {
  return MODE_DIFFERENCES.some((one) => one.id === id && one.modes.includes(mode));
}

/** The sentence of a difference. */
export function differenceText(id: DifferenceId): string {
  return MODE_DIFFERENCES.find((one) => one.id === id)?.text ?? id;
}
