import { readSysctl, writeSysctl } from '../../src/kernel/sysctl.ts';

/** Sets whether iptables and nf_tables of the family ip see bridged packets (br_netfilter) in nodes; false: this kernel cannot. */
export function setBridgeNetfilter(nodes: readonly string[], isOn: boolean): boolean {
  for (const netns of nodes)
    for (const family of ['ip', 'ip6', 'arp']) {
      const name = `net.bridge.bridge-nf-call-${family}tables`;
      try {
        writeSysctl(name, isOn ? 1 : 0, { path: netns });
      } catch {
        return false;
      }
      if (readSysctl(name, { path: netns }) !== (isOn ? '1' : '0')) return false;
    }
  return true;
}
