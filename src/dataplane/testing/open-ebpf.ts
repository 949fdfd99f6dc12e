import { createEbpf, type EbpfDataplane, type EbpfOptions } from '../ebpf/ebpf.ts';
import { createNftables } from '../nftables/nftables.ts';

/** Opens the eBPF mode with the nftables mode's rules as its fallback, as agents do. */
export const openEbpf = (options: Omit<EbpfOptions, 'fallback'>): EbpfDataplane =>
  createEbpf({ ...options, fallback: createNftables });
