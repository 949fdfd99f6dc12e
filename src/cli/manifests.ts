import { isIP } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { readContext } from '../kube/kubeconfig.ts';
import { messageOf } from '../lib/errors.ts';
import { currentDnsAddress } from './cluster-dns-address.ts';
import { defineCommand } from './command.ts';
import { commandAccessYaml } from './command-access-objects.ts';
import { DNS_REPLICAS } from './dns-objects.ts';
import { installationYaml } from './installation-objects.ts';
import { INSTALLATIONS, MONITORS } from './installation-shared.ts';
import { choice, flag, text, texts, usageError, wholeNumber } from './options.ts';
import { version } from './version.ts';

export const command = defineCommand({
  name: 'manifests',
  summary: 'print the manifests that install Fairlead on a real cluster',
  description: [
    'Prints Kubernetes objects for `kubectl apply -f -`: a DaemonSet of agents with its ServiceAccount, permissions and configuration. proxy: replaces kube-proxy; proxy-dns: replaces cluster DNS too; all: also provides the pod network (CNI) and network policies; policy: only network policies, alongside kube-proxy; commands: only the rights that --commands adds.',
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
    commands: flag(
      'open port 10268 of the nodes for status, explain, flows, trace and others from other machines, and add the rights for them (docs/remote-commands.md)',
    ),
    unprivileged: flag(
      "give the agents' container the capabilities of its parts only (docs/operating.md); default: privileged",
    ),
    'metrics-address': text(
      'ADDRESS',
      'the address of the nodes at which agents serve /metrics, such as 0.0.0.0 or [::]; default: 127.0.0.1, for programs on the node only',
      { fallback: '' },
    ),
    monitor: texts(
      'KIND',
      'with --metrics-address: add a PodMonitor (pod) or a ServiceMonitor (service) of the Prometheus Operator',
    ),
  },
  examples: [
    'manifests | kubectl apply -f -',
    'manifests --for all --lb-pool 192.0.2.10-192.0.2.50',
    'manifests --commands --metrics-address 0.0.0.0 --monitor pod',
  ],
  async run({ options }, output) {
    const parts = options.for;
    if (parts === 'commands') {
      output.out(commandAccessYaml(options.namespace));
      return 0;
    }
    const monitors = options.monitor.map(readMonitor);
    if (monitors.length > 0 && isLoopback(options['metrics-address']))
      throw usageError('manifests', '--monitor needs --metrics-address: Prometheus does not reach 127.0.0.1');
    const [server = currentServer(), ...servers] = options['api-server'];
    // Other parts serve no DNS.
    const servesDns = parts === 'proxy-dns' || parts === 'all';
    const given = options['dns-address'];
    const dns = servesDns && given === '' ? await currentDnsAddress(process.env) : null;
    if (dns?.isServed)
      output.err(
        `fairlead: the ${dns.source} has a selector: it is another name server's, and not among these objects\n`,
      );
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
        dnsAddress: dns?.address ?? given,
        keepsDnsService: dns?.isServed === true,
        dnsReplicas: options['dns-replicas'],
        uplink: options.uplink,
        pool: options['lb-pool'],
        commands: options.commands,
        privileged: !options.unprivileged,
        metricsAddress: bracketed(options['metrics-address']),
        monitors,
      }),
    );
    return 0;
  },
});

const isLoopback = (address: string): boolean => address === '' || /^(127\.|\[?::1\]?$)/.test(address);

/** Returns an address as it stands before a port. Throws FairleadError if it is none. */
function bracketed(address: string): string {
  const plain = address.replace(/^\[(.*)\]$/, '$1');
  const version = isIP(plain);
  if (address !== '' && version === 0)
    throw usageError('manifests', `--metrics-address takes an IP address, not ${address}`);
  return version === 6 ? `[${plain}]` : plain;
}

function readMonitor(text: string): (typeof MONITORS)[number] {
  const kind = MONITORS.find((one) => one === text);
  if (kind === undefined)
    throw usageError('manifests', `--monitor takes ${MONITORS.join(' or ')}, not ${text}`);
  return kind;
}

/** Returns the API server of kubectl's current context. */
function currentServer(): string {
  const file = process.env['KUBECONFIG']?.split(':').find(Boolean) ?? join(homedir(), '.kube', 'config');
  try {
    return readContext(file).credentials.server;
  } catch (error) {
    throw usageError('manifests', `missing --api-server URL (${messageOf(error)})`);
  }
}
