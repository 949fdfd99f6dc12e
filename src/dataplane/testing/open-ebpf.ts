import { createEbpf, type EbpfDataplane, type EbpfOptions } from '../ebpf/ebpf.ts';
import { createNftables } from '../nftables/nftables.ts';

/** The eBPF mode before the nftables mode's rules, as agents run it. */
export const openEbpf = (options: Omit<EbpfOptions, 'fallback'>): EbpfDataplane =>
  createEbpf({ ...options, fallback: createNftables });
