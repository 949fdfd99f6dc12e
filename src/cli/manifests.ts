import { homedir } from 'node:os';
import { join } from 'node:path';
import { readContext } from '../kube/kubeconfig.ts';
import { messageOf } from '../lib/errors.ts';
import { defineCommand } from './command.ts';
import { INSTALLATIONS, installationYaml } from './installation-objects.ts';
import { choice, text, texts, usageError } from './options.ts';
import { version } from './version.ts';

export const command = defineCommand({
  name: 'manifests',
  summary: 'print what installs Fairlead on a real cluster',
  description: [
    'Prints Kubernetes objects for `kubectl apply -f -`: a DaemonSet of agents with its ServiceAccount, rights and configuration. proxy: in place of kube-proxy; proxy-dns: in place of the cluster DNS too; all: the network of pods (CNI) and network policies too; policy: network policies alone, beside kube-proxy.',
    'docs/install.md tells what to do before and after, and what each right is for.',
  ],
  arguments: [],
  options: {
    for: choice('PARTS', INSTALLATIONS, 'proxy', 'what the agents carry', { main: true }),
    image: text('IMAGE', 'the image of the agent', { fallback: `fairlead:${version}` }),
    namespace: text('NAMESPACE', 'where the objects go', { fallback: 'kube-system' }),
    mode: choice(
      'MODE',
      ['nftables', 'ebpf', 'iptables', 'ipvs', 'userspace'],
      'nftables',
      'how nodes carry Services',
    ),
    'api-server': text('URL', "the API server as nodes reach it; default: that of kubectl's current context"),
    'cluster-cidr': text('CIDR[,CIDR]', "networks of pods; default: each Node's podCIDRs", { fallback: '' }),
    'cluster-domain': text('DOMAIN', 'the domain of DNS names', { fallback: 'cluster.local' }),
    'dns-address': text('ADDRESS', 'the cluster IP of DNS', { fallback: '10.96.0.10' }),
    uplink: text('INTERFACE', 'the interface that leads to the other nodes', { fallback: 'eth0' }),
    'lb-pool': texts(
      'RANGE',
      'give Services of type LoadBalancer addresses out of this range, and announce them',
    ),
  },
  examples: ['manifests | kubectl apply -f -', 'manifests --for all --lb-pool 192.0.2.10-192.0.2.50'],
  async run({ options }, output) {
    output.out(
      installationYaml({
        parts: options.for,
        namespace: options.namespace,
        image: options.image,
        mode: options.mode,
        server: options['api-server'] ?? currentServer(),
        clusterCidr: options['cluster-cidr'],
        clusterDomain: options['cluster-domain'],
        dnsAddress: options['dns-address'],
        uplink: options.uplink,
        pool: options['lb-pool'],
      }),
    );
    return 0;
  },
});

/** The API server of kubectl's current context. */
function currentServer(): string {
  const file = process.env['KUBECONFIG']?.split(':').find(Boolean) ?? join(homedir(), '.kube', 'config');
  try {
    return readContext(file).credentials.server;
  } catch (error) {
    throw usageError('manifests', `missing --api-server URL (${messageOf(error)})`);
  }
}
