import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { kubeconfigJson, kubeconfigText } from '../kube/kubeconfig-text.ts';
import { ANNOUNCERS_GROUP } from '../kube/load-balancer.ts';
import { addressAt, hostPort, parseCidr } from '../lib/address.ts';
import {
  type CertificateAuthority,
  createAuthority,
  createSigningKey,
  openAuthority,
  publicKeyOf,
} from '../lib/pki.ts';
import { authorityName } from './authority-name.ts';
import { CONTROLLER_MANAGER, SCHEDULER } from './control-plane-programs.ts';
import { type ClusterState, clusterPaths, type NodeState } from './state.ts';

/** Writes the keys and certificates of the authority, the API server, the administrator and each node. */
export function writeCredentials(state: ClusterState): void {
  const paths = clusterPaths(state.name);
  mkdirSync(paths.pki, { recursive: true, mode: 0o700 });
  const authority = createAuthority(authorityName(state), new Date());
  const serviceAddresses = state.serviceCidrs.flatMap((text) => {
    const cidr = parseCidr(text);
    return cidr ? [addressAt(cidr, 1)] : [];
  });
  const server = authority.issue({
    commonName: 'kube-apiserver',
    organizations: ['system:masters'],
    names: [
      ...['localhost', '127.0.0.1', ...state.controlPlaneAddresses, ...serviceAddresses, 'kubernetes'],
      ...['kubernetes.default', 'kubernetes.default.svc', `kubernetes.default.svc.${state.clusterDomain}`],
    ],
    usage: 'both',
  });
  write(join(paths.pki, 'ca.crt'), authority.cert);
  write(join(paths.pki, 'ca.key'), authority.key);
  write(join(paths.pki, 'apiserver.crt'), server.cert);
  write(join(paths.pki, 'apiserver.key'), server.key);
  write(join(paths.pki, 'service-account.key'), createSigningKey());
  const admin = authority.issue({
    commonName: 'kubernetes-admin',
    organizations: ['system:masters'],
    usage: 'client',
  });
  write(
    paths.kubeconfig,
    kubeconfigText({
      name: authorityName(state),
      server: `https://127.0.0.1:${state.apiPort}`,
      ca: authority.cert,
      ...admin,
    }),
  );
  if (state.realControlPlane) writeProgramCredentials(state, authority);
  for (const node of state.nodes) writeIdentity(state, node, authority);
}

/** Writes what only a real control plane reads: the identities of its programs, and the authority of its front proxy. */
function writeProgramCredentials(state: ClusterState, authority: CertificateAuthority): void {
  const { pki } = clusterPaths(state.name);
  const frontProxy = createAuthority('front-proxy-ca', new Date());
  const client = frontProxy.issue({ commonName: 'front-proxy-client', usage: 'client' });
  const signingKey = readFileSync(join(pki, 'service-account.key'), 'utf8');
  write(join(pki, 'service-account.pub'), publicKeyOf(signingKey));
  write(join(pki, 'front-proxy-ca.crt'), frontProxy.cert);
  write(join(pki, 'front-proxy-client.crt'), client.cert);
  write(join(pki, 'front-proxy-client.key'), client.key);
  for (const program of [CONTROLLER_MANAGER, SCHEDULER]) {
    const identity = authority.issue({ commonName: `system:${program}`, usage: 'client' });
    write(
      join(pki, `${program}.kubeconfig`),
      kubeconfigJson({
        name: authorityName(state),
        server: `https://127.0.0.1:${state.apiPort}`,
        ca: authority.cert,
        ...identity,
      }),
    );
  }
}

/** Returns the cluster's authority, created by `writeCredentials`. */
export function clusterAuthority(state: ClusterState): CertificateAuthority {
  const { pki } = clusterPaths(state.name);
  const read = (file: string) => readFileSync(join(pki, file), 'utf8');
  return openAuthority(authorityName(state), { cert: read('ca.crt'), key: read('ca.key') }, new Date());
}

/** Writes the keys and certificates of a node that is added later. */
export function writeNodeCredentials(state: ClusterState, node: NodeState): void {
  writeIdentity(state, node, clusterAuthority(state));
}

/** Returns the kubeconfig with which a node's agent writes the Leases of announced addresses. */
export const announcerKubeconfig = (state: ClusterState, node: NodeState): string =>
  join(clusterPaths(state.name).node(node.name), 'announcer.kubeconfig');

/** Writes that kubeconfig, unless it is there: nodes of an earlier version have none. */
export function completeNodeCredentials(state: ClusterState, node: NodeState): void {
  if (!existsSync(announcerKubeconfig(state, node))) writeAnnouncer(state, node, clusterAuthority(state));
}

function writeAnnouncer(state: ClusterState, node: NodeState, authority: CertificateAuthority): void {
  const identity = authority.issue({
    commonName: `fairlead:announcer:${node.name}`,
    organizations: [ANNOUNCERS_GROUP],
    usage: 'client',
  });
  write(
    announcerKubeconfig(state, node),
    kubeconfigJson({
      name: authorityName(state),
      server: nodeServer(state),
      ca: authority.cert,
      ...identity,
    }),
  );
}

/** Returns the URL of the API server for nodes. */
function nodeServer(state: ClusterState): string {
  const [address = ''] = state.controlPlaneAddresses;
  return `https://${hostPort({ ip: address, port: state.apiPort })}`;
}

const write = (file: string, text: string) => writeFileSync(file, text, { mode: 0o600 });

function writeIdentity(state: ClusterState, node: NodeState, authority: CertificateAuthority): void {
  const folder = clusterPaths(state.name).node(node.name);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const identity = authority.issue({
    commonName: `system:node:${node.name}`,
    organizations: ['system:nodes'],
    names: [node.name, ...node.addresses],
    usage: 'both',
  });
  write(join(folder, 'node.crt'), identity.cert);
  write(join(folder, 'node.key'), identity.key);
  write(
    join(folder, 'kubeconfig'),
    kubeconfigJson({
      name: authorityName(state),
      server: nodeServer(state),
      ca: authority.cert,
      ...identity,
    }),
  );
  writeAnnouncer(state, node, authority);
}
