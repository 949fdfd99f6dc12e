/**
 * The objects that the questions to `explain` are about: pods, Services and policies, each with at most one
 * fault.
 */

import {
  client,
  clusterIp,
  clusterIp6,
  echo,
  IMPATIENT,
  type Json,
  listenOn,
  nodePort,
  pod,
  policy,
  probe,
  service,
  slice,
} from './question-objects.ts';

/** On the wire, but not assigned to a host. */
export const UNUSED_ON_WIRE = '172.30.0.77';
/** Off the wire: TEST-NET-3. */
export const OFF_WIRE = '203.0.113.77';

/** Returns all objects of the scene. `outside`: the address of the client outside. */
export function sceneObjects(outside: string): Json[] {
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'lab' } },
    echo('web-1', 'web', 'node-1', 8080, {
      container: { ...probe(8080), ports: [{ name: 'web', containerPort: 8080 }] },
    }),
    echo('web-2', 'web', 'node-2', 8080, {
      container: { ...probe(8080), ports: [{ name: 'web', containerPort: 8080 }] },
    }),
    echo('lone', 'lone', 'node-2'),
    echo('half-1', 'half', 'node-1'),
    echo('half-2', 'half', 'node-1', 9090),
    echo('guarded', 'guarded', 'node-2'),
    echo('hostweb', 'hostweb', 'node-2', 8085, { spec: { hostNetwork: true } }),
    echo('api-1', 'api', 'node-1', 8080, { namespace: 'lab' }),
    echo('hostport', 'hostport', 'node-1', 8080, {
      container: { ...probe(8080), ports: [{ containerPort: 8080, hostPort: 18080 }] },
    }),
    pod('split', ['fairlead', 'echo', '--port=8080', '--udp-port=9000'], { container: probe(8080) }),
    pod('inner', listenOn('inner', '127.0.0.1')),
    pod('v4-only', listenOn('v4-only', '0.0.0.0'), { container: probe(8080) }),
    pod('slow', ['fairlead', 'echo', '--port=8080'], {
      container: { readinessProbe: { exec: { command: ['false'] }, periodSeconds: 1 } },
    }),
    pod('crash', ['sh', '-c', 'exit 1']),
    pod('pending', ['sleep', 'infinity'], { spec: { nodeSelector: { none: 'such' } } }),
    client('client'),
    client('client-2', { node: 'node-2' }),
    client('client', { namespace: 'lab' }),
    client('friend'),
    client('silent'),
    client('web-only', { spec: { dnsConfig: { options: IMPATIENT } } }),
    client('host-client', { spec: { hostNetwork: true } }),
    client('host-dns', { spec: { hostNetwork: true, dnsPolicy: 'ClusterFirstWithHostNet' } }),
    client('default-dns', { spec: { dnsPolicy: 'Default' } }),
    client('own-dns', {
      spec: { dnsPolicy: 'None', dnsConfig: { nameservers: ['10.96.50.250'], options: IMPATIENT } },
    }),
    client('short-search', { spec: { dnsConfig: { options: [{ name: 'ndots', value: '1' }] } } }),
    client('aliased', { spec: { hostAliases: [{ ip: clusterIp('web'), hostnames: ['my-web'] }] } }),
    service('web', 'web', nodePort(30081)),
    service('web-lb', 'web', { type: 'LoadBalancer' }),
    service('sticky', 'web', { sessionAffinity: 'ClientIP' }),
    service('local', 'lone', { ...nodePort(30084), externalTrafficPolicy: 'Local' }),
    service('inside', 'lone', { internalTrafficPolicy: 'Local' }),
    service('slow', 'slow'),
    service('typo', 'wbe'),
    service('ranges', 'web', { type: 'LoadBalancer', loadBalancerSourceRanges: ['192.0.2.0/24'] }),
    service('ranges-ok', 'web', { type: 'LoadBalancer', loadBalancerSourceRanges: [`${outside}/32`] }),
    service('named', 'web', { ports: [{ port: 80, targetPort: 'http' }] }),
    service('named-port', 'web', { ports: [{ port: 80, targetPort: 'web' }] }),
    service('bare', null),
    service('pending', 'pending'),
    service('crash', 'crash'),
    service('wrong-target', 'web', { ports: [{ port: 80, targetPort: 9999 }] }),
    service('default-target', 'web', { ports: [{ port: 80 }] }),
    service('inner', 'inner'),
    service('v4-only', 'v4-only'),
    service('ext-ip', 'web', { externalIPs: [UNUSED_ON_WIRE, OFF_WIRE] }),
    service('hostnet', 'hostweb', {
      type: 'NodePort',
      ports: [{ port: 80, targetPort: 8085, nodePort: 30007 }],
    }),
    service('host-wrong', 'hostweb', { ports: [{ port: 80, targetPort: 8086 }] }),
    service('half', 'half', {}, { annotations: { 'fairlead.dev/failover': 'disabled' } }),
    service('multi', 'web', {
      ports: [
        { name: 'http', port: 80, targetPort: 8080 },
        { name: 'admin', port: 81, targetPort: 9999 },
      ],
    }),
    service('second-port', 'web', {
      ports: [
        { name: 'http', port: 80, targetPort: 8080 },
        { name: 'echo', port: 80, targetPort: 8080, protocol: 'UDP' },
      ],
    }),
    service('udp', 'web', { ports: [{ port: 80, targetPort: 8080, protocol: 'UDP' }] }),
    service('udp-refused', 'web', { ports: [{ port: 80, targetPort: 9999, protocol: 'UDP' }] }),
    service('split', 'split', { ports: [{ port: 80, targetPort: 8080, protocol: 'UDP' }] }),
    service('guarded', 'guarded'),
    service('to-outside', null),
    slice('to-outside', outside, 7777),
    service('to-no-pod', null),
    slice('to-no-pod', '10.244.0.250', 8080),
    service('to-nowhere', null),
    slice('to-nowhere', '198.51.100.7', 8080),
    service('lb-local', 'lone', { type: 'LoadBalancer', externalTrafficPolicy: 'Local' }),
    service('lb-empty', 'slow', { type: 'LoadBalancer', externalTrafficPolicy: 'Local' }),
    service('lb-wrong-target', 'web', { type: 'LoadBalancer', ports: [{ port: 80, targetPort: 9999 }] }),
    service('six', 'web', {
      ipFamilyPolicy: 'SingleStack',
      ipFamilies: ['IPv6'],
      clusterIP: clusterIp6('six'),
      clusterIPs: [clusterIp6('six')],
    }),
    service('headless', 'web', { clusterIP: 'None' }),
    service('headless-empty', 'wbe', { clusterIP: 'None' }),
    service('away', null, { type: 'ExternalName', externalName: 'www.example.com' }),
    service('alias', null, { type: 'ExternalName', externalName: 'web.default.svc.cluster.local' }),
    service('api', 'api', {}, { namespace: 'lab' }),
    policy(
      'guarded',
      { app: 'guarded' },
      { ingress: [{ from: [{ podSelector: { matchLabels: { app: 'friend' } } }] }] },
    ),
    policy('silent', { app: 'silent' }, { egress: [] }),
    policy(
      'web-only',
      { app: 'web-only' },
      { egress: [{ to: [{ podSelector: { matchLabels: { app: 'web' } } }] }] },
    ),
  ];
}

/** Pods that never become ready. */
export const UNREADY = ['slow', 'crash', 'pending'];
/** Load balancers without an endpoint: no node announces their addresses. */
export const UNANNOUNCED = ['lb-empty'];
