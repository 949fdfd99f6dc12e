import type { Mode } from '../../src/dataplane/dataplane.ts';
import type { Cluster } from './cluster.ts';

/** Objects of the clusters that prove the promise, besides examples/hello.yaml and the scene of policy-traffic.ts. */
export const PROMISE_SCENE = `
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: hello}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec:
  clusterIP: None
  ipFamilyPolicy: RequireDualStack
  selector: {app: hello}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: hello.default.svc.cluster.local}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: rolling}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxSurge: 100%, maxUnavailable: 0}}
  selector: {matchLabels: {app: rolling}}
  template:
    metadata: {labels: {app: rolling}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
        - name: echo
          image: fairlead
          command: [fairlead, echo, --port=8080]
          # On a busy machine an answer may take longer than a second: without a ready pod, requests are refused.
          readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1, timeoutSeconds: 20}
          # New connections may arrive until every node knows that this pod is leaving.
          lifecycle: {preStop: {sleep: {seconds: 2}}}
---
apiVersion: v1
kind: Service
metadata: {name: rolling}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: rolling}
  ports:
    - {name: http, port: 80, targetPort: 8080, nodePort: 30082}
    - {name: udp, protocol: UDP, port: 80, targetPort: 8080, nodePort: 30082}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: fragile}
spec:
  replicas: 4
  selector: {matchLabels: {app: fragile}}
  template:
    metadata: {labels: {app: fragile}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        # Can be disconnected from the network, or stopped, without a change of its pod's status.
        - name: echo
          image: fairlead
          command: [sh, -c, 'fairlead echo --port=8080 & echo $! > /tmp/server; sleep infinity']
          securityContext: {capabilities: {add: [NET_ADMIN]}}
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 600}
---
apiVersion: v1
kind: Service
metadata: {name: fragile}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: fragile}
  ports: [{port: 80, targetPort: 8080, nodePort: 30081}]
---
apiVersion: v1
kind: Pod
metadata: {name: on-host, labels: {app: on-host}}
spec:
  nodeName: node-1
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: echo, image: fairlead, command: [fairlead, echo, --port=8086]}]
---
apiVersion: v1
kind: Service
metadata: {name: on-host}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: on-host}
  ports: [{protocol: UDP, port: 80, targetPort: 8086, nodePort: 30083}]
`;

/** State of another program on a node, which no command of ours removes. */
export interface ForeignState {
  readonly add: readonly string[];
  readonly list: readonly string[];
  readonly shown: RegExp;
  readonly remove: readonly string[];
}

export const FOREIGN: readonly ForeignState[] = [
  {
    add: ['nft', 'add', 'table', 'ip', 'theirs'],
    list: ['nft', 'list', 'tables'],
    shown: /theirs/,
    remove: ['nft', 'delete', 'table', 'ip', 'theirs'],
  },
  {
    add: ['iptables', '-t', 'nat', '-N', 'THEIRS'],
    list: ['iptables-save'],
    shown: /THEIRS/,
    remove: ['iptables', '-t', 'nat', '-X', 'THEIRS'],
  },
];

/** The cluster of a mode, which all its tests share. */
export interface PromiseScene {
  readonly mode: Mode;
  /** The mode of the switch. */
  readonly next: Mode;
  readonly cluster: Cluster;
  /** Options of a load, and the time that an answer and a change may take. */
  readonly load: readonly string[];
  readonly patienceMs: number;
  /** The machine before `up`. */
  readonly earlier: readonly string[];
  /** Runs a program in the network of node-1. */
  onNode(...words: string[]): string;
  /** The cluster IPs of a Service: of IPv4 and of IPv6. */
  clusterIPs(service: string): Promise<readonly [string, string]>;
}
