import { Counter, Gauge, Histogram } from 'prom-client';
import { splitKey } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import type { EndVerdict } from '../policy/allows.ts';
import type { DeniedPod, Enforcement } from '../policy/enforcement.ts';
import { DIRECTIONS } from '../policy/model.ts';
import type { PolicyTable } from '../policy/policy-table.ts';
import type { AgentContext } from './agent-context.ts';

/** Pods and policies for which denials by the proxy are counted separately: the latest ones. */
const MAX_DENIED_PODS = 1000;

/** Counts what the kernel does not. */
export interface PolicyMetrics {
  /** The node's proxy refused a client. */
  denied(family: IPFamily, end: EndVerdict): void;
  /** The kernel has a change. */
  programmed(done: { readonly latencyMs: number }): void;
  /** An update of the kernel failed. */
  failed(): void;
}

/** Creates the metrics of network policies. `enforcement`: null until the policies have been read. */
export function createPolicyMetrics(
  registry: AgentContext['registry'],
  table: PolicyTable,
  enforcement: () => Enforcement | null,
): PolicyMetrics {
  const registers = [registry];
  new Gauge({
    name: 'fairlead_policy_active',
    help: 'NetworkPolicies that isolate pods of this node.',
    registers,
    collect() {
      this.set(table.all().policies.size);
    },
  });
  new Gauge({
    name: 'fairlead_policy_elements',
    help: 'Elements of the nf_tables sets of network policies, of both families.',
    registers,
    collect() {
      this.set(enforcement()?.elements() ?? 0);
    },
  });
  new Gauge({
    name: 'fairlead_policy_refused',
    help: 'Pods and policies, by family, whose elements the kernel rejects, so that they are left out and tried again.',
    labelNames: ['ip_family', 'kind'],
    registers,
    collect() {
      this.reset();
      for (const { family, kind } of enforcement()?.refusals() ?? []) this.inc({ ip_family: family, kind });
    },
  });
  const latency = new Histogram({
    name: 'fairlead_policy_programming_duration_seconds',
    help: 'Time from a change of a policy, pod or namespace until the kernel has it.',
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers,
  });
  const failures = new Counter({
    name: 'fairlead_policy_programming_failures_total',
    help: 'Failed updates of network policies in the kernel.',
    registers,
  });
  /** Denied by the proxy of this node, by family and direction. */
  const byProxy = new Map<string, number>();
  /** The same by pod and policy; a bounded number, since pods come and go. */
  const podsByProxy = new Map<string, DeniedPod>();
  new Counter({
    name: 'fairlead_policy_denied_packets_total',
    help: 'Packets that network policies dropped on this node; in userspace mode also connections to Services of which they allow the client no endpoint.',
    labelNames: ['direction', 'ip_family'],
    registers,
    collect() {
      this.reset();
      for (const family of ['ipv4', 'ipv6'] as const) {
        for (const direction of DIRECTIONS) {
          const dropped = enforcement()?.denied(family, direction) ?? 0;
          const refused = byProxy.get(`${family} ${direction}`) ?? 0;
          this.inc({ direction, ip_family: family }, dropped + refused);
        }
      }
    },
  });
  new Counter({
    name: 'fairlead_policy_denied_pod_packets_total',
    help: 'Like fairlead_policy_denied_packets_total, by pod and policy. The policy is empty if no rule of the NetworkPolicies of the pod allows the packets.',
    labelNames: ['namespace', 'pod', 'policy', 'direction', 'ip_family'],
    registers,
    collect() {
      this.reset();
      for (const one of [...(enforcement()?.deniedPods() ?? []), ...podsByProxy.values()]) {
        const { family, direction, pod: key, policy, packets } = one;
        const { namespace, name: pod } = splitKey(key);
        this.inc({ namespace, pod, policy: policy ?? '', direction, ip_family: family }, packets);
      }
    },
  });
  return {
    denied(family, { direction, pod, reason }) {
      const key = `${family} ${direction}`;
      byProxy.set(key, (byProxy.get(key) ?? 0) + 1);
      if (pod === null) return;
      const policy = reason.kind === 'rule' ? reason.policy : null;
      const id = `${key} ${policy ?? ''} ${pod}`;
      const packets = (podsByProxy.get(id)?.packets ?? 0) + 1;
      podsByProxy.delete(id);
      podsByProxy.set(id, { family, direction, pod, policy, packets });
      const [oldest] = podsByProxy.keys();
      if (podsByProxy.size > MAX_DENIED_PODS && oldest !== undefined) podsByProxy.delete(oldest);
    },
    programmed: ({ latencyMs }) => latency.observe(latencyMs / 1000),
    failed: () => failures.inc(),
  };
}
