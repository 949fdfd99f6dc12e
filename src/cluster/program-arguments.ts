import { join } from 'node:path';
import type { IPFamily } from '../lib/address.ts';
import { API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER } from './control-plane-programs.ts';
import { maxPodsOf, nodePrefixes } from './plan.ts';
import { type ClusterState, clusterPaths } from './state.ts';

/** The client port of etcd, on loopback of the control plane's namespace, which only the control plane uses. */
const ETCD_URL = 'http://127.0.0.1:2379';
const ETCD_PEER_URL = 'http://127.0.0.1:2380';

/** The arguments of each program of a real control plane. All listen on addresses of the control plane's namespace. */
const ARGUMENTS: Readonly<Record<string, (state: ClusterState) => readonly string[]>> = {
  [ETCD]: ({ name }) => [
    `--data-dir=${clusterPaths(name).etcd}`,
    `--listen-client-urls=${ETCD_URL}`,
    `--advertise-client-urls=${ETCD_URL}`,
    `--listen-peer-urls=${ETCD_PEER_URL}`,
    `--initial-advertise-peer-urls=${ETCD_PEER_URL}`,
    `--initial-cluster=default=${ETCD_PEER_URL}`,
    '--log-level=warn',
    // As envtest: written data survives the end of every process, but not a power failure.
    '--unsafe-no-fsync',
  ],
  [API_SERVER]: (state) => {
    const pki = pkiOf(state);
    const issuer = `https://kubernetes.default.svc.${state.clusterDomain}`;
    return [
      `--etcd-servers=${ETCD_URL}`,
      `--bind-address=${state.ipFamily === 'ipv4' ? '0.0.0.0' : '::'}`,
      `--secure-port=${state.apiPort}`,
      `--advertise-address=${state.controlPlaneAddresses[0]}`,
      `--service-cluster-ip-range=${state.serviceCidrs.join()}`,
      `--authorization-mode=${state.authorization === 'RBAC' ? 'Node,RBAC' : state.authorization}`,
      '--enable-admission-plugins=NodeRestriction',
      '--allow-privileged=true',
      `--tls-cert-file=${pki('apiserver.crt')}`,
      `--tls-private-key-file=${pki('apiserver.key')}`,
      `--client-ca-file=${pki('ca.crt')}`,
      `--kubelet-client-certificate=${pki('apiserver.crt')}`,
      `--kubelet-client-key=${pki('apiserver.key')}`,
      `--kubelet-certificate-authority=${pki('ca.crt')}`,
      '--kubelet-preferred-address-types=InternalIP',
      `--service-account-issuer=${issuer}`,
      `--service-account-key-file=${pki('service-account.pub')}`,
      `--service-account-signing-key-file=${pki('service-account.key')}`,
      `--requestheader-client-ca-file=${pki('front-proxy-ca.crt')}`,
      '--requestheader-allowed-names=front-proxy-client',
      '--requestheader-username-headers=X-Remote-User',
      '--requestheader-group-headers=X-Remote-Group',
      '--requestheader-extra-headers-prefix=X-Remote-Extra-',
      `--proxy-client-cert-file=${pki('front-proxy-client.crt')}`,
      `--proxy-client-key-file=${pki('front-proxy-client.key')}`,
      // The control plane's namespace has routes to pods, and no proxy rules.
      '--enable-aggregator-routing=true',
    ];
  },
  [CONTROLLER_MANAGER]: (state) => {
    const pki = pkiOf(state);
    return [
      ...loopbackClient(pki('kube-controller-manager.kubeconfig')),
      '--use-service-account-credentials=true',
      '--allocate-node-cidrs=true',
      `--cluster-cidr=${state.podCidrs.join()}`,
      `--service-cluster-ip-range=${state.serviceCidrs.join()}`,
      ...nodeMasks(state),
      `--root-ca-file=${pki('ca.crt')}`,
      `--service-account-private-key-file=${pki('service-account.key')}`,
      `--cluster-signing-cert-file=${pki('ca.crt')}`,
      `--cluster-signing-key-file=${pki('ca.key')}`,
      // The defaults, 20 and 30, delay hundreds of pods by seconds.
      '--kube-api-qps=200',
      '--kube-api-burst=400',
    ];
  },
  [SCHEDULER]: (state) => loopbackClient(pkiOf(state)('kube-scheduler.kubeconfig')),
};

/** Returns the arguments of a program of a real control plane. */
export function programArguments(state: ClusterState, program: string): readonly string[] {
  return ARGUMENTS[program]?.(state) ?? [];
}

const pkiOf =
  ({ name }: ClusterState) =>
  (file: string): string =>
    join(clusterPaths(name).pki, file);

/** A client of the API server that serves its own health and metrics on loopback, and has no rival. */
const loopbackClient = (kubeconfig: string): string[] => [
  `--kubeconfig=${kubeconfig}`,
  `--authentication-kubeconfig=${kubeconfig}`,
  `--authorization-kubeconfig=${kubeconfig}`,
  '--bind-address=127.0.0.1',
  '--leader-elect=false',
];

function nodeMasks(state: ClusterState): string[] {
  const prefixes = nodePrefixes(maxPodsOf(state));
  if (state.ipFamily !== 'dual')
    return [`--node-cidr-mask-size=${prefixes[state.ipFamily satisfies IPFamily]}`];
  return [`--node-cidr-mask-size-ipv4=${prefixes.ipv4}`, `--node-cidr-mask-size-ipv6=${prefixes.ipv6}`];
}
