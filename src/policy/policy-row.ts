import type { LabelSelector, NetworkPolicy } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import type { ClusterPolicyKind, ClusterPolicyObject } from './cluster-policy-reader.ts';
import type { Protocol } from './model.ts';

/** A policy of the whole cluster in a row. */
export interface RowClusterPolicy {
  readonly kind: ClusterPolicyKind;
  readonly object: ClusterPolicyObject;
}

/**
 * The table of policies and of the packets that each set allows and denies: tests compare it with `allows` and with
 * packets, and `fairlead check` sends the packets in a running cluster.
 */
export interface PolicyRow {
  readonly name: string;
  readonly policies: readonly NetworkPolicy[];
  /** Needs their CustomResourceDefinitions. */
  readonly clusterPolicies?: readonly RowClusterPolicy[];
  /** "x/a → x/b:80/TCP"; a row applies to both families. */
  readonly allowed?: readonly string[];
  readonly denied?: readonly string[];
}

/** Returns the kinds that a row's policies have, besides NetworkPolicy. */
export const kindsOf = ({ clusterPolicies = [] }: PolicyRow): ClusterPolicyKind[] =>
  clusterPolicies.map(({ kind }) => kind);

/** The names and addresses of a cluster in which the rows apply. */
export interface RowScene {
  /** Returns the name of namespace "x", "y" or "z" of the rows. */
  namespace(name: string): string;
  /** Returns the name of "node-1" or "node-2", which is also its label kubernetes.io/hostname. */
  node(name: string): string;
  /** Networks that contain the addresses of all pods, one for each family. */
  readonly podNetworks: readonly string[];
  /** Networks that contain the addresses of z/c, but of no other pod, one for each family. */
  readonly farNetworks: readonly string[];
  /** The addresses of the host outside, one for each family. */
  readonly outside: readonly string[];
}

/** A pod of the rows. x/a and y/a run on node-1 with x/b; z/c runs on node-2. */
export interface RowPod {
  /** "namespace/name" */
  readonly key: string;
  /** "app=a,tier=web" */
  readonly labels: string;
  readonly node: 'node-1' | 'node-2';
  /** "http=80/TCP": ports with names. */
  readonly ports: readonly string[];
}

/** Returns "a=1,b=2" as labels. */
export const labels = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split(',')
      .filter((one) => one !== '')
      .map((one) => one.split('=') as [string, string]),
  );

export const withLabels = (text: string): LabelSelector => ({ matchLabels: labels(text) });

/** Selects all pods. */
export const ALL: LabelSelector = {};

export interface RowPacket {
  readonly from: string;
  readonly to: string;
  readonly port: number;
  readonly protocol: Protocol;
}

/** Reads "x/a → x/b:80/TCP". */
export function rowPacket(text: string): RowPacket {
  const [, from = '', to = '', port = '', protocol = ''] = /^(\S+) → (\S+):(\d+)\/(\w+)$/.exec(text) ?? [];
  if (protocol !== 'TCP' && protocol !== 'UDP' && protocol !== 'SCTP')
    throw new FairleadError(`not a packet: ${text}`, { op: 'read a row', code: 'bad-argument' });
  return { from, to, port: Number(port), protocol };
}
