import {
  type Installation,
  type InstallationOptions,
  type KubeObject,
  LABEL,
  meta,
  NAME,
} from './installation-shared.ts';

/** The name of the port of /metrics in the agents' pods. */
export const METRICS_PORT_NAME = 'metrics';
/** Beside the agents that only enforce policies, kube-proxy has the usual port. */
export const metricsPort = (parts: Installation): number => (parts === 'policy' ? 10267 : 10249);

const GROUP = 'monitoring.coreos.com/v1';
export const METRICS_SERVICE = 'fairlead-metrics';

/**
 * How Prometheus reads an agent. `job` is the label of the object, so that it is "fairlead" as in the alerting rules, and
 * `instance` the node, because addresses of nodes can change.
 */
const ENDPOINT = {
  port: METRICS_PORT_NAME,
  relabelings: [{ sourceLabels: ['__meta_kubernetes_pod_node_name'], targetLabel: 'instance' }],
};

/** Returns the objects of the Prometheus Operator by which Prometheus finds the agents. */
export function monitorObjects(options: InstallationOptions): KubeObject[] {
  const { monitors, parts } = options;
  const selector = { matchLabels: { [LABEL]: NAME } };
  return [
    ...(monitors.includes('pod')
      ? [
          {
            apiVersion: GROUP,
            kind: 'PodMonitor',
            metadata: meta(options, NAME),
            spec: { jobLabel: LABEL, selector, podMetricsEndpoints: [ENDPOINT] },
          },
        ]
      : []),
    ...(monitors.includes('service')
      ? [
          {
            apiVersion: 'v1',
            kind: 'Service',
            metadata: { ...meta(options, METRICS_SERVICE), labels: { [LABEL]: NAME } },
            spec: {
              // Prometheus asks each agent.
              clusterIP: 'None',
              selector: { [LABEL]: NAME },
              ports: [{ name: METRICS_PORT_NAME, port: metricsPort(parts), targetPort: METRICS_PORT_NAME }],
            },
          },
          {
            apiVersion: GROUP,
            kind: 'ServiceMonitor',
            metadata: meta(options, NAME),
            spec: { jobLabel: LABEL, selector, endpoints: [ENDPOINT] },
          },
        ]
      : []),
  ];
}
