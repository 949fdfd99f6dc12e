import { stringify } from 'yaml';
import { commandAccessYaml } from './command-access-objects.ts';
import {
  INSTALLATIONS,
  type Installation,
  type InstallationOptions,
  installationYaml,
} from './installation-objects.ts';
import { version } from './version.ts';

/** Values of the Helm chart: the placeholder's name, its default and its meaning. */
const VALUES: readonly [name: string, fallback: string, meaning: string][] = [
  ['parts', 'proxy', 'proxy, proxy-dns, all or policy: the functions of the agents'],
  ['image', `fairlead:${version}`, 'the image of the agent'],
  ['mode', 'nftables', 'nftables, ebpf, iptables, ipvs or userspace'],
  ['apiServer', '', 'https://HOST:PORT of the API server for nodes; required'],
  ['clusterDomain', 'cluster.local', 'the domain of DNS names'],
  ['dnsAddress', '10.96.0.10', 'the cluster IP of DNS, with proxy-dns and all'],
  ['uplink', 'eth0', 'the interface towards the other nodes, with all'],
  [
    'commands',
    'false',
    'true: access for commands of other machines (docs/remote-commands.md), for users that you bind to its Roles',
  ],
  ['pool', '', 'a range of load-balancer addresses; empty: another program assigns addresses'],
];

const CHART_OPTIONS: Omit<InstallationOptions, 'parts' | 'pool'> = {
  namespace: '{{ .Release.Namespace }}',
  image: '{{ .Values.image }}',
  mode: '{{ .Values.mode }}',
  server: '{{ required "apiServer: https://HOST:PORT of the API server" .Values.apiServer }}',
  clusterCidr: '',
  dnsAddress: '{{ .Values.dnsAddress }}',
  clusterDomain: '{{ .Values.clusterDomain }}',
  uplink: '{{ .Values.uplink }}',
};

/** Returns the files below deploy/, rendered from the objects that `fairlead manifests` prints: path → text. */
export function deploymentFiles(): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  for (const parts of INSTALLATIONS) {
    files.set(`kustomize/${parts}/kustomization.yaml`, kustomization(parts));
    files.set(`kustomize/${parts}/fairlead.yaml`, kustomizeBase(parts));
    files.set(`helm/fairlead/templates/${parts}.yaml`, chartTemplate(parts));
  }
  files.set(
    'kustomize/commands/kustomization.yaml',
    stringify({
      apiVersion: 'kustomize.config.k8s.io/v1beta1',
      kind: 'Kustomization',
      resources: ['fairlead.yaml'],
    }),
  );
  files.set('kustomize/commands/fairlead.yaml', commandAccessYaml('kube-system'));
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

function kustomization(parts: Installation): string {
  return stringify({
    apiVersion: 'kustomize.config.k8s.io/v1beta1',
    kind: 'Kustomization',
    resources: ['fairlead.yaml'],
    images: [{ name: 'fairlead', newTag: version }],
    ...(parts === 'proxy' ? {} : { labels: [{ pairs: { 'app.kubernetes.io/component': parts } }] }),
  });
}

/** The user replaces the address, by a patch or in the file. */
function kustomizeBase(parts: Installation): string {
  return installationYaml({
    parts,
    namespace: 'kube-system',
    image: `fairlead:${version}`,
    mode: 'nftables',
    server: 'https://API-SERVER:6443',
    clusterCidr: '',
    dnsAddress: '10.96.0.10',
    clusterDomain: 'cluster.local',
    uplink: 'eth0',
    pool: [],
  });
}

function chartTemplate(parts: Installation): string {
  const without = installationYaml({ ...CHART_OPTIONS, parts, pool: [] });
  const withPool = installationYaml({ ...CHART_OPTIONS, parts, pool: ['{{ .Values.pool }}'] });
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
