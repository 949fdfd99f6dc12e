import type { Mode } from '../../src/dataplane/dataplane.ts';
import { clusterIp, clusterIp6 } from './question-objects.ts';
import { OFF_WIRE, UNUSED_ON_WIRE } from './question-scene.ts';

/** The actual outcome: `some`: part of the connections is answered, and part refused. */
export type Reality = 'answer' | 'refused' | 'silence' | 'unreachable' | 'unresolved' | 'some';

export interface QuestionRow {
  readonly name: string;
  readonly from: string;
  /**
   * In the form that a user types; NODE1 and NODE2 are replaced by nodes' addresses, BRIDGE1 and BRIDGE2 by those of their
   * bridges, LB(service) by a load balancer's.
   */
  readonly to: string;
  readonly real: Reality;
  /** Modes with another outcome. */
  readonly in?: Partial<Record<Mode, Reality>>;
  /** The outcome if nodes send through tunnels: their own packets then come from an address of the pod network. */
  readonly tunnelled?: Reality;
  readonly family?: 4 | 6;
  /** A pattern that the short text must match. */
  readonly says?: RegExp;
  /** The time without an answer that counts as silence, where no host is asked for its address; default: longer than that takes. */
  readonly silenceMs?: number;
}

export const row = (
  name: string,
  from: string,
  to: string,
  real: Reality,
  more: Pick<QuestionRow, 'in' | 'tunnelled' | 'family' | 'says'> = {},
): QuestionRow => ({ name, from, to, real, ...more });

const ip = clusterIp;

/** Questions of which explain once answered a third wrongly. */
export const QUESTIONS: readonly QuestionRow[] = [
  row('a pod to a Service by name', 'client', 'web', 'answer'),
  row('a Service of another namespace', 'client', 'api.lab', 'answer'),
  row('a node port from outside', 'outside', 'NODE1:30081', 'answer'),
  row('a headless Service, the port of its pods', 'client', 'headless:8080', 'answer'),
  row('a load balancer from outside', 'outside', 'LB(web-lb):80', 'answer'),
  row('session affinity', 'client', 'svc/sticky', 'answer'),
  row('a Local node port of a node with an endpoint', 'outside', 'NODE2:30084', 'answer'),
  row('a Local node port of a node without', 'outside', 'NODE1:30084', 'silence', {
    says: /externalTrafficPolicy/,
  }),
  row('pods that are not ready', 'client', 'svc/slow', 'refused', { says: /not ready/ }),
  row('a selector with a typing error', 'client', 'svc/typo', 'refused', { says: /app=web/ }),
  row('a pod to its own Service', 'web-1', 'svc/web', 'answer'),
  row('a source that the load balancer does not admit', 'outside', 'LB(ranges):80', 'silence', {
    says: /loadBalancerSourceRanges/,
  }),
  row('a target port by a name that no pod has', 'client', 'svc/named', 'refused', {
    says: /targetPort http/,
  }),
  row('internalTrafficPolicy Local without an endpoint here', 'client', 'svc/inside', 'silence'),
  row('a Service without selector and endpoints', 'client', 'svc/bare', 'refused'),
  row('a pod that is pending', 'client', 'svc/pending', 'refused'),
  row('a pod that crashes', 'client', 'svc/crash', 'refused'),
  row('a node to a cluster IP', 'node/node-1', 'svc/web', 'answer'),
  row('the node port at the cluster IP', 'client', `${ip('web')}:30081`, 'refused'),
  row('a cluster IP of no Service', 'client', '10.96.50.250:80', 'silence'),
  row('a port that the Service does not list', 'client', 'svc/web:81', 'refused'),
  row('IPv6 to a Service of IPv4 only', 'lab/client', 'kubernetes.default:443', 'unresolved', { family: 6 }),

  row('a headless Service, a port where nothing listens', 'client', 'headless:80', 'refused', {
    says: /nothing listens/,
  }),
  row('a target port where nothing listens', 'client', 'svc/wrong-target', 'refused', { says: /9999/ }),
  row('the target port left out', 'client', 'svc/default-target', 'refused', { says: /8080/ }),
  row('a server that listens on loopback only', 'client', 'svc/inner', 'refused', { says: /127\.0\.0\.1/ }),
  row('dnsPolicy Default', 'default-dns', 'web', 'unresolved', { says: /dnsPolicy/ }),
  row('a pod of the host network, by name', 'host-client', 'web', 'unresolved', { says: /dnsPolicy/ }),
  row('an external IP of the wire that no node announces', 'outside', `${UNUSED_ON_WIRE}:80`, 'unreachable'),
  row('a cluster IP from outside', 'outside', `${ip('web')}:80`, 'unreachable'),
  row('a pod from outside', 'outside', 'pod/web-1:8080', 'unreachable'),
  row('a node port of no Service', 'outside', 'NODE1:30005', 'refused'),
  row('an address outside without a default route', 'client', '198.51.100.9:80', 'unreachable'),
  row('a name that does not exist', 'client', 'wbe.lab', 'unresolved', { says: /wbe\.lab/ }),
  row('the name of a Service elsewhere', 'client', 'api', 'unresolved', { says: /api\.lab/ }),
  row('an ExternalName to outside', 'client', 'away:80', 'unresolved', { says: /www\.example\.com/ }),
  row('a load balancer to an endpoint of the same node', 'outside', 'LB(lb-local):80', 'answer'),
  row('a server in the host network', 'client', 'svc/hostnet', 'answer'),
  row('the address of the cluster DNS', 'client', '10.96.0.10:53/tcp', 'answer', { says: /kube-dns/ }),
  row('a Service without its namespace, from another', 'lab/client', 'svc/api', 'answer'),
  row('a node to its own node port', 'node/node-1', 'NODE1:30081', 'answer'),
];

/** The same, with one change in each. */
export const VARIATIONS: readonly QuestionRow[] = [
  row('by the full name', 'client', 'web.default.svc.cluster.local', 'answer'),
  row('by a URL', 'client', 'http://web/path', 'answer'),
  row('from a pod of another namespace', 'lab/client', 'web', 'unresolved', { says: /web\.default/ }),
  row('from another namespace by its name', 'lab/client', 'web.default', 'answer'),
  row('from a node, by name', 'node/node-1', 'web', 'answer'),
  row('from a pod of the host network with cluster DNS', 'host-dns', 'web', 'answer'),
  row('from a pod with a name server that does not answer', 'own-dns', 'web', 'unresolved', {
    says: /10\.96\.50\.250/,
  }),
  row('from a pod that may not ask the DNS', 'web-only', 'web', 'unresolved', {
    says: /NetworkPolicy|policy/,
  }),
  row('from a pod that may not ask the DNS, by address', 'web-only', `${ip('web')}:80`, 'answer'),
  row('by a name of hostAliases', 'aliased', 'my-web:80', 'answer'),
  row('with ndots 1, a name with a dot', 'short-search', 'api.lab', 'answer'),
  row('an alias of a Service', 'client', 'alias:80', 'answer'),
  row('a headless Service without pods', 'client', 'headless-empty:80', 'unresolved'),
  row('outside, by name', 'outside', 'web.default:80', 'unresolved'),

  row('over IPv6', 'client', 'svc/web', 'answer', { family: 6 }),
  row('over IPv6, where nothing listens', 'client', 'svc/wrong-target', 'refused', { family: 6 }),
  row('over IPv6, a server of IPv4 alone', 'client', 'svc/v4-only', 'refused', { family: 6 }),
  row('over IPv4, the same server', 'client', 'svc/v4-only', 'answer'),
  row('over IPv6, a Service of IPv6 alone', 'client', 'svc/six', 'answer', { family: 6 }),
  row('over IPv4, a Service of IPv6 alone', 'client', 'six', 'unresolved'),
  row('over IPv6, a node port', 'outside', 'NODE1:30081', 'answer', { family: 6 }),
  row('over IPv6, the cluster IP from outside', 'outside', `[${clusterIp6('web')}]:80`, 'unreachable'),

  row('over UDP', 'client', 'svc/udp:80/udp', 'answer'),
  row('over UDP, where nothing listens', 'client', 'svc/udp-refused:80/udp', 'refused', {
    in: { userspace: 'silence' },
  }),
  row('over UDP, where TCP alone listens', 'client', 'svc/split:80/udp', 'refused', {
    in: { userspace: 'silence' },
  }),
  row('over UDP, a port of TCP alone', 'client', 'svc/web:80/udp', 'refused'),
  row('the only TCP port of two', 'client', 'svc/second-port', 'answer'),

  row('one endpoint of two listens', 'client', 'svc/half', 'some', { in: { userspace: 'answer' } }),
  row('a second port where nothing listens', 'client', 'svc/multi:admin', 'refused'),
  row('a target port by a name that pods have', 'client', 'svc/named-port', 'answer'),
  row('the load balancer’s target port, from outside', 'outside', 'LB(lb-wrong-target):80', 'refused'),
  row('a load balancer without a ready endpoint', 'outside', 'LB(lb-empty):80', 'unreachable'),
  row('a wrong port of a load balancer', 'outside', 'LB(web-lb):81', 'unreachable', {
    in: { ipvs: 'refused' },
  }),
  row('a load balancer from a pod', 'client', 'LB(web-lb):80', 'answer'),
  row('a load balancer from a node', 'node/node-2', 'LB(web-lb):80', 'answer'),
  row('a source that the load balancer admits', 'outside', 'LB(ranges-ok):80', 'answer'),
  row('an external IP from a pod', 'client', `${UNUSED_ON_WIRE}:80`, 'answer'),
  row('an external IP off the wire, from outside', 'outside', `${OFF_WIRE}:80`, 'unreachable'),
  // In IPVS mode the address is on each node's own interface.
  row('an external IP off the wire, from a node', 'node/node-1', `${OFF_WIRE}:80`, 'unreachable', {
    in: { ipvs: 'answer' },
  }),
  row('an external IP off the wire, from the host network', 'host-dns', `${OFF_WIRE}:80`, 'unreachable', {
    in: { ebpf: 'answer', ipvs: 'answer' },
  }),
  row('a Local node port from a pod', 'client', 'NODE1:30084', 'answer'),
  row('a node port of another node', 'client', 'NODE2:30081', 'answer'),
  row('a Local node port of another node with an endpoint', 'client', 'NODE2:30084', 'answer'),
  row('a Local node port of another node without', 'client-2', 'NODE1:30084', 'silence', {
    says: /externalTrafficPolicy/,
  }),
  row('a node to a node port of another node', 'node/node-1', 'NODE2:30081', 'answer'),
  row('a node to a Local node port of another node without', 'node/node-2', 'NODE1:30084', 'silence'),
  row('over IPv6, a node port of another node', 'client', 'NODE2:30081', 'answer', { family: 6 }),
  row('internalTrafficPolicy Local with an endpoint', 'client-2', 'svc/inside', 'answer'),

  row('a node to its own server of the host network', 'node/node-2', 'svc/hostnet', 'answer'),
  row('a pod to its own node port', 'web-1', 'NODE1:30081', 'answer'),
  row('a pod to a pod', 'client', 'pod/web-2:8080', 'answer'),
  row('a pod to a port of a pod where nothing listens', 'client', 'pod/web-2:81', 'refused'),
  row('a pod to itself', 'web-1', 'pod/web-1:8080', 'answer'),
  row('a pod to its own loopback', 'inner', '127.0.0.1:8080', 'answer'),
  row('a pod to its loopback, where nothing listens', 'client', '127.0.0.1:8080', 'refused'),
  row('a node to a pod', 'node/node-1', 'pod/web-2:8080', 'answer'),
  row('a pod to a node, where nothing listens', 'client', 'NODE2:81', 'refused'),
  row('a pod to a server of the host network', 'client', 'NODE2:8085', 'answer'),
  row('outside to a server of the host network', 'outside', 'NODE2:8085', 'answer'),
  row('outside to a node port of the host network', 'outside', 'NODE2:30007', 'answer'),
  row('the host network, a port where nothing listens', 'client', 'svc/host-wrong', 'refused'),
  row('a host port from outside', 'outside', 'NODE1:18080', 'answer'),
  row('a host port of another node', 'outside', 'NODE2:18080', 'refused'),
  row('a pod to outside, where nothing listens', 'client', 'outside:7777', 'refused'),
  row('a pod to an address of the wire without a host', 'client', '172.30.0.78:80', 'unreachable'),
  row('a pod to an address of the pod network without a pod', 'client', '10.244.0.251:80', 'unreachable'),
  row('a Service to a server outside that is down', 'client', 'svc/to-outside', 'refused'),
  row('a Service to an address without a pod', 'client', 'svc/to-no-pod', 'unreachable', {
    in: { userspace: 'refused' },
  }),
  row('a Service to an address without a route', 'client', 'svc/to-nowhere', 'unreachable', {
    in: { userspace: 'refused' },
  }),

  row('a policy that does not allow it', 'client', 'svc/guarded', 'silence', { says: /guarded/ }),
  row('a policy that allows it', 'friend', 'svc/guarded', 'answer'),
  row('a policy, from a node', 'node/node-1', 'svc/guarded', 'silence'),
  row('a pod that may send nothing', 'silent', `${ip('web')}:80`, 'silence', { says: /silent/ }),
  row('a pod that may send to others', 'web-only', `${ip('guarded')}:80`, 'silence'),
];
