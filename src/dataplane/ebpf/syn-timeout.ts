import { EJECTION_RULES } from '../../failover/ejection-rules.ts';
import { jiffies } from '../../kernel/bpf/jiffies.ts';
import { type BpfLink, linkCgroup } from '../../kernel/bpf/link.ts';
import { type BpfMap, createMap } from '../../kernel/bpf/map.ts';
import { readObject, relocate } from '../../kernel/bpf/object.ts';
import { loadProgram } from '../../kernel/bpf/program.ts';
import { makeControlGroup } from '../../kernel/control-group.ts';
import { type Cidr, cidrContains } from '../../lib/address.ts';
import { mappedAddress } from './entries.ts';
import { MAPS, NETWORK } from './generated/layout.ts';
import { OBJECT } from './generated/syn-timeout.ts';

/** The short SYN timer of one control group's sockets, for connections to Services in modes that use connection tracking. */
export interface SynTimeout {
  /** Returns true for addresses in the networks. */
  covers(address: string): boolean;
  /** Detaches the program. */
  close(): void;
}

const IPV4_PREFIX = 96;

/**
 * Shortens the SYN timer of sockets in a control group that connect to these networks (bpf/syn-timeout.bpf.c). The link is
 * not pinned: the program is detached when this process ends in any way, since without it nothing leads the next SYN to
 * another endpoint. Throws FairleadError if the kernel does not support it or this process lacks the privilege.
 */
export function attachSynTimeout(cgroup: string, networks: readonly Cidr[]): SynTimeout {
  makeControlGroup(cgroup);
  const map = createMap({ ...MAPS.service_networks, maxEntries: Math.max(1, networks.length) });
  try {
    const timer = new Uint8Array(Uint32Array.of(jiffies(EJECTION_RULES.programUnansweredMs)).buffer);
    for (const network of networks) map.update(networkKey(network), timer);
    const link = attach(map, cgroup);
    return {
      covers: (address) => networks.some((network) => cidrContains(network, address)),
      close: () => link.close(),
    };
  } finally {
    // The program holds it.
    map.close();
  }
}

/** The program is loaded for each map: that takes less than a millisecond. */
function attach(map: BpfMap, cgroup: string): BpfLink {
  const { license, programs } = readObject(Buffer.from(OBJECT, 'base64'));
  const [program] = programs;
  // Invariant: the object in generated/ has one.
  if (!program) throw new Error('the object has no program');
  const instructions = relocate(program, new Map([['service_networks', map.fd]]));
  const loaded = loadProgram({
    name: program.name,
    type: 'sockOps',
    attach: 'sockOps',
    instructions,
    license,
  });
  try {
    return linkCgroup(loaded.fd, cgroup, 'sockOps');
  } finally {
    loaded.close();
  }
}

function networkKey({ text, prefix }: Cidr): Uint8Array {
  const key = new Uint8Array(NETWORK.size);
  const [address = ''] = text.split('/');
  const isIpv4 = !address.includes(':');
  new Uint32Array(key.buffer)[NETWORK.prefix_length / 4] = prefix + (isIpv4 ? IPV4_PREFIX : 0);
  key.set(mappedAddress(address), NETWORK.address);
  return key;
}
