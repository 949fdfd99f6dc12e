import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '../../src/lib/testing/eventually.ts';
import type { Origin } from './take-over.ts';

export const KUBE_PROXY = join(process.env['KUBEBUILDER_ASSETS'] ?? '', 'kube-proxy');
/** The reason to skip tests with the real kube-proxy, or false. */
export const NO_KUBE_PROXY = existsSync(KUBE_PROXY)
  ? false
  : 'KUBEBUILDER_ASSETS names no folder with kube-proxy';

/** What no take-over may leave; in our iptables mode, chains have kube-proxy's names. */
function leftBy(ours: string): RegExp {
  const ipvs = 'kube-ipvs0|KUBE-(LOAD-BALANCER|IPVS|LOOP|CLUSTER-IP)|:KUBE-NODE-PORT ';
  return new RegExp(
    ours === 'iptables'
      ? `KUBE-PROXY-CANARY|kube-proxy|${ipvs}`
      : `KUBE-(PROXY|SERVICES|SVC)|kube-proxy|${ipvs}`,
  );
}

/** Virtual servers with open connections, and the ipsets that list them, stay until the connections have ended. */
const DRAINING = /KUBE-(6-)?NODE-PORT|-t [0-9.]+:30555/;

/** The real kube-proxy in one of its modes. */
export const kubeProxyIn = (mode: 'iptables' | 'nftables' | 'ipvs'): Origin => ({
  name: 'kube-proxy',
  async start({ namespace, kubeconfig, state, onNode }, [service = '']) {
    const child = spawn(
      'ip',
      [
        ...['netns', 'exec', namespace, KUBE_PROXY, '--kubeconfig', kubeconfig],
        ...['--hostname-override', 'node-1', '--proxy-mode', mode, '--cluster-cidr', '10.244.0.0/16'],
        ...['--conntrack-max-per-core', '0'],
      ],
      { stdio: 'ignore' },
    );
    const shown = {
      iptables: new RegExp(`-d ${service}/32`),
      nftables: /table ip kube-proxy/,
      ipvs: new RegExp(`-a -t ${service}:`),
    };
    await eventually(state, (text) => shown[mode].test(text));
    return {
      client: 'node/node-1',
      hasNodePorts: true,
      async stop() {
        child.kill('SIGKILL');
        await once(child, 'exit');
      },
      rules: () =>
        mode === 'nftables'
          ? []
          : onNode('iptables-save', '-t', 'nat')
              .split('\n')
              .filter((line) => line.startsWith('-A')),
      translates: (address) =>
        mode === 'ipvs'
          ? onNode('ipvsadm', '-Sn').includes(`${address}:`)
          : onNode('nft', 'list', 'ruleset').includes(address),
      isLeft: (ours) => leftBy(ours).test(state()),
      isDraining: () => DRAINING.test(state()),
      dispose() {
        child.kill('SIGKILL');
      },
    };
  },
});
