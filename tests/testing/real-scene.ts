/** Objects on a cluster of two real nodes: servers behind Services of every type, and clients. */

const image = (name: string) => `image: ${name}`;
const IDLE = `command: [/opt/fairlead/node, -e, "setInterval(() => {}, 1e9)"]`;

const pod = (name: string, node: string, container: string, more = '', labels = '{}') => `
apiVersion: v1
kind: Pod
metadata: {name: ${name}, labels: ${labels}}
spec:
  nodeSelector: {kubernetes.io/hostname: ${node}}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, ${container}}]
${more}
---`;

const service = (name: string, spec: string) => `
apiVersion: v1
kind: Service
metadata: {name: ${name}}
spec: {${spec}}
---`;

// On a busy machine an answer may take longer than the second of the default: without a ready pod, requests are refused.
const READY =
  'readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1, timeoutSeconds: 20}';
const PORT = 'ports: [{port: 80, targetPort: 8080}]';

export const NODE_PORT = 30080;
export const LOCAL_NODE_PORT = 30081;
export const HOST_PORT = 9191;

/** A server on each node, with a Service that has a node port. */
export const webServers = (name: string) => `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [pod-template-hash]}
      containers: [{name: main, ${image(name)}, args: [echo], ${READY}}]
---
${service(
  'web',
  `type: NodePort, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080, nodePort: ${NODE_PORT}}, {name: udp, protocol: UDP, port: 80, targetPort: 8080, nodePort: ${NODE_PORT}}]`,
)}`;

/** The other Services. */
export const moreServices = [
  service('balanced', `type: LoadBalancer, selector: {app: web}, ${PORT}`),
  service(
    'local',
    `type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: ${LOCAL_NODE_PORT}}]`,
  ),
  service('headless', 'clusterIP: None, selector: {app: web}, ports: [{port: 8080}]'),
  service('alias', 'type: ExternalName, externalName: web.default.svc.cluster.local'),
  service('guarded', `selector: {app: guarded}, ${PORT}`),
].join('');

export const clients = (name: string) =>
  [
    pod('client-1', 'n1', `${image(name)}, ${IDLE}`),
    pod('client-2', 'n2', `${image(name)}, ${IDLE}`),
    pod('friend', 'n1', `${image(name)}, ${IDLE}`, '', '{role: friend}'),
    // glibc then asks the name server over TCP.
    pod('tcp-client', 'n2', `${image(name)}, ${IDLE}`, '  dnsConfig: {options: [{name: use-vc}]}'),
    pod(
      'host-port',
      'n1',
      `${image(name)}, args: [echo], ports: [{containerPort: 8080, hostPort: ${HOST_PORT}}]`,
    ),
    pod('guarded', 'n2', `${image(name)}, args: [echo], ${READY}`, '', '{app: guarded}'),
    `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: guarded}
spec:
  podSelector: {matchLabels: {app: guarded}}
  ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]
---`,
  ].join('');
