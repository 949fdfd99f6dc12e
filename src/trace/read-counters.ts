import { inNetns, type NetnsRef } from '../kernel/netns.ts';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { Tables } from '../nft/tables.ts';
import { DENIED } from '../policy/policy-chain-names.ts';
import { POLICY_TABLE } from '../policy/render.ts';
import { type Counters, policyCounter, readCounterLines, readCounterPairs } from './counters.ts';

/** Reads the kernel's counters of a network namespace, and the counters of the network policies' rules there. */
export function readCounters(netns: NetnsRef): Counters {
  const [snmp, netstat, snmp6] = inNetns(netns, () =>
    ['snmp', 'netstat', 'snmp6'].map((name) => readOptionalFile(`/proc/thread-self/net/${name}`) ?? ''),
  );
  const counters = new Map([
    ...readCounterPairs(snmp ?? ''),
    ...readCounterPairs(netstat ?? ''),
    ...readCounterLines(snmp6 ?? ''),
  ]);
  const tables = new Tables({ families: ['ipv4', 'ipv6'], name: POLICY_TABLE, netns });
  try {
    for (const chain of Object.values(DENIED)) {
      const packets = [...tables].reduce((sum, table) => sum + table.packets(chain), 0);
      counters.set(policyCounter(POLICY_TABLE, chain), packets);
    }
  } finally {
    tables.close();
  }
  return counters;
}
