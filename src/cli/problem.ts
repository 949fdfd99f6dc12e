/** The codes of problems, for programs, and their meanings. A code keeps its meaning; new ones may be added (docs/versioning.md). */
export const PROBLEM_CODES = {
  'process-stopped': 'a process of the local cluster does not run',
  'record-not-writable': "the supervisor's record of processes cannot be written",
  'api-server-unhealthy': 'a health check of the API server fails, or it does not answer',
  'node-not-ready': 'the Node is not ready',
  'node-network': "the node's pod network is not set up",
  'mtu-differs': 'devices that packets between nodes pass have different MTUs',
  'agent-missing': 'no agent runs on the node',
  'agent-silent': 'the agent of the node, or every agent, does not answer the command',
  'agent-unhealthy': 'the agent of the node reports that it is unhealthy',
  'service-invalid': 'a field of a Service or an EndpointSlice cannot be programmed',
  'service-without-endpoints': 'a Service with a selector has no ready endpoint',
  'service-refused': 'an endpoint of a Service does not accept what the Service sends to it',
  'load-balancer-address': 'a Service has no load-balancer address, or no node announces it',
  'egress-gateway': 'an EgressGateway is not in force, or no node has one of its addresses',
  'ingress-not-answered': 'an Ingress has no address, or the proxy of no node answers it',
  'pod-not-ready': 'a pod is not ready',
  'fault-planted': 'a fault is planted (fairlead fault)',
  'port-closed': 'a published port is closed',
  'egress-closed': 'pods do not reach external networks over a family',
  'names-unresolved': 'pods do not resolve external names',
} as const;

export type ProblemCode = keyof typeof PROBLEM_CODES;

/** A problem that `status` lists. */
export interface Problem {
  readonly code: ProblemCode;
  /** "Service shop/web", "Node node-1", "process control-plane"; null: the cluster as a whole. */
  readonly object: string | null;
  /** The field of the object that is to be corrected, such as "spec.selector"; null: not one field. */
  readonly field: string | null;
  /** A sentence for people: object, cause and fix. */
  readonly message: string;
}

export const problem = (
  code: ProblemCode,
  object: string | null,
  message: string,
  field: string | null = null,
): Problem => ({ code, object, field, message });
