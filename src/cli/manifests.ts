import { homedir } from 'node:os';
import { join } from 'node:path';
import { readContext } from '../kube/kubeconfig.ts';
import { messageOf } from '../lib/errors.ts';
import { currentDnsAddress } from './cluster-dns-address.ts';
import { defineCommand } from './command.ts';
import { commandAccessYaml } from './command-access-objects.ts';
import { DNS_REPLICAS } from './dns-objects.ts';
import { installationYaml } from './installation-objects.ts';
import { INSTALLATIONS } from './installation-shared.ts';
import { choice, text, texts, usageError, wholeNumber } from './options.ts';
import { version } from './version.ts';

export const command = defineCommand({
  name: 'manifests',
  summary: 'print the manifests that install Fairlead on a real cluster',
  description: [
    'Prints Kubernetes objects for `kubectl apply -f -`: a DaemonSet of agents with its ServiceAccount, permissions and configuration. proxy: replaces kube-proxy; proxy-dns: replaces cluster DNS too; all: also provides the pod network (CNI) and network policies; policy: only network policies, alongside kube-proxy; commands: in addition to one of these, access for commands of other machines.',
    'docs/install.md describes the installation and the purpose of each permission.',
  ],
  arguments: [],
  options: {
    for: choice('PARTS', [...INSTALLATIONS, 'commands'], 'proxy', 'the functions of the agents', {
      main: true,
    }),
    image: text('IMAGE', 'the image of the agent', { fallback: `fairlead:${version}` }),
    namespace: text('NAMESPACE', 'the namespace of the objects', { fallback: 'kube-system' }),
    mode: choice('MODE', ['nftables', 'ebpf', 'iptables', 'ipvs', 'userspace'], 'nftables', 'the proxy mode'),
    'api-server': texts(
      'URL',
      "an API server's address for nodes, preferred ones first; default: the server of kubectl's current context",
    ),
    'cluster-cidr': text('CIDR[,CIDR]', "networks of pods; default: each Node's podCIDRs", { fallback: '' }),
    'cluster-domain': text('DOMAIN', 'the domain of DNS names', { fallback: 'cluster.local' }),
    'dns-address': text(
      'ADDRESS',
      "with proxy-dns and all: the cluster IP of DNS; default: that of the Service kube-dns in the cluster of kubectl's current context, else the tenth address of its range of Services",
      { fallback: '' },
    ),
    'dns-replicas': wholeNumber(
      'N',
      [DNS_REPLICAS, 0, 100],
      'with proxy-dns: pods that answer DNS while the agent of a node is replaced',
    ),
    uplink: text(
      'INTERFACE',
      "the interface towards the other nodes; default: the one with the node's address",
      { fallback: '' },
    ),
    'lb-pool': texts(
      'RANGE',
      'assign addresses from this range to Services of type LoadBalancer, and announce them',
    ),
  },
  examples: [
    'manifests | kubectl apply -f -',
    'manifests --for all --lb-pool 192.0.2.10-192.0.2.50',
    'manifests --for commands | kubectl apply -f -',
  ],
  async run({ options }, output) {
    const parts = options.for;
    if (parts === 'commands') {
      output.out(commandAccessYaml(options.namespace));
      return 0;
    }
    const [server = currentServer(), ...servers] = options['api-server'];
    // Other parts serve no DNS.
    const servesDns = parts === 'proxy-dns' || parts === 'all';
    const dnsAddress = options['dns-address'] || (servesDns ? await currentDnsAddress(process.env) : '');
    output.out(
      installationYaml({
        parts,
        namespace: options.namespace,
        image: options.image,
        mode: options.mode,
        server,
        servers,
        clusterCidr: options['cluster-cidr'],
        clusterDomain: options['cluster-domain'],
        dnsAddress,
        dnsReplicas: options['dns-replicas'],
        uplink: options.uplink,
        pool: options['lb-pool'],
      }),
    );
    return 0;
  },
});

/** Returns the API server of kubectl's current context. */
function currentServer(): string {
  const file = process.env['KUBECONFIG']?.split(':').find(Boolean) ?? join(homedir(), '.kube', 'config');
  try {
    return readContext(file).credentials.server;
  } catch (error) {
    throw usageError('manifests', `missing --api-server URL (${messageOf(error)})`);
  }
}
