import { stringify } from 'yaml';
import { commandAccessYaml } from './command-access-objects.ts';
import { DNS_REPLICAS } from './dns-objects.ts';
import { installationYaml } from './installation-objects.ts';
import {
  AGENT_REQUESTS,
  INSTALLATIONS,
  type Installation,
  type InstallationOptions,
} from './installation-shared.ts';
import { kustomizeFiles } from './kustomize-files.ts';
import { version } from './version.ts';

/** Values of the Helm chart: the placeholder's name, its default and its meaning. */
const VALUES: readonly [name: string, fallback: string | number | readonly string[], meaning: string][] = [
  ['parts', 'proxy', 'proxy, proxy-dns, all or policy: the functions of the agents'],
  ['image', `fairlead:${version}`, 'the image of the agent'],
  ['mode', 'nftables', 'nftables, ebpf, iptables, ipvs or userspace'],
  ['apiServer', '', 'https://HOST:PORT of the API server for nodes; required'],
  ['apiServers', [], 'further https://HOST:PORT of API servers, which the agents use if the first one fails'],
  ['clusterDomain', 'cluster.local', 'the domain of DNS names'],
  ['dnsAddress', '10.96.0.10', 'the cluster IP of DNS, with proxy-dns and all'],
  [
    'dnsReplicas',
    DNS_REPLICAS,
    'pods that answer DNS while the agent of a node is replaced, with proxy-dns; 0: none',
  ],
  ['uplink', 'eth0', 'the interface towards the other nodes, with all'],
  [
    'commands',
    'false',
    'true: access for commands of other machines (docs/remote-commands.md), for users that you bind to its Roles',
  ],
  ['cpu', AGENT_REQUESTS.cpu, 'the processor time that is reserved for each agent (docs/install.md, Sizing)'],
  ['memory', AGENT_REQUESTS.memory, 'the memory that is reserved for each agent'],
  ['pool', '', 'a range of load-balancer addresses; empty: another program assigns addresses'],
];

/** A list cannot be a placeholder in YAML; this item stands for one. Likewise a number. */
const SERVERS = 'API-SERVERS';
const REPLICAS = 4_294_967_295;

const CHART_OPTIONS: Omit<InstallationOptions, 'parts' | 'pool'> = {
  namespace: '{{ .Release.Namespace }}',
  image: '{{ .Values.image }}',
  mode: '{{ .Values.mode }}',
  server: '{{ required "apiServer: https://HOST:PORT of the API server" .Values.apiServer }}',
  servers: [SERVERS],
  clusterCidr: '',
  dnsAddress: '{{ .Values.dnsAddress }}',
  dnsReplicas: REPLICAS,
  clusterDomain: '{{ .Values.clusterDomain }}',
  uplink: '{{ .Values.uplink }}',
  requests: { cpu: '{{ .Values.cpu }}', memory: '{{ .Values.memory }}' },
};

/** Returns the files below deploy/, rendered from the objects that `fairlead manifests` prints: path → text. */
export function deploymentFiles(): ReadonlyMap<string, string> {
  const files = new Map([...kustomizeFiles()].map(([path, text]) => [`kustomize/${path}`, text]));
  for (const parts of INSTALLATIONS) {
    files.set(`helm/fairlead/templates/${parts}.yaml`, chartTemplate(parts));
  }
  files.set(
    'helm/fairlead/templates/commands.yaml',
    `{{- if eq (toString .Values.commands) "true" }}\n${commandAccessYaml('{{ .Release.Namespace }}')}{{- end }}\n`,
  );
  files.set(
    'helm/fairlead/Chart.yaml',
    stringify({
      apiVersion: 'v2',
      name: 'fairlead',
      description: 'Kubernetes Services, and optionally DNS and the pod network, in place of kube-proxy',
      type: 'application',
      version,
      appVersion: version,
      kubeVersion: '>=1.29.0-0',
    }),
  );
  files.set(
    'helm/fairlead/values.yaml',
    VALUES.map(([name, fallback, meaning]) => `# ${meaning}\n${stringify({ [name]: fallback })}`).join(''),
  );
  return files;
}

function chartTemplate(parts: Installation): string {
  const render = (pool: readonly string[]) =>
    installationYaml({ ...CHART_OPTIONS, parts, pool })
      .replace(new RegExp(`servers:\\n +- ${SERVERS}\\n`), 'servers: {{ toJson .Values.apiServers }}\n')
      .replace(`replicas: ${REPLICAS}\n`, 'replicas: {{ int .Values.dnsReplicas }}\n');
  const without = render([]);
  const withPool = render(['{{ .Values.pool }}']);
  return [
    `{{- if eq .Values.parts "${parts}" }}\n`,
    '{{- if .Values.pool }}\n',
    withPool,
    '{{- else }}\n',
    without,
    '{{- end }}\n',
    '{{- end }}\n',
  ].join('');
}
