/** Counts of the results of health checks, which /metrics/slis shows. */
export interface HealthcheckMetrics {
  /** Counts one result. `type` is the path without its slash: "healthz", "livez", "readyz". */
  observe(name: string, type: string, isHealthy: boolean): void;
  /** Returns the text that Prometheus scrapes. */
  render(): string;
}

export const PROMETHEUS_TEXT = 'text/plain; version=0.0.4; charset=utf-8';

/** Counts health checks under the names that all components of Kubernetes use (KEP-3466). */
export function createHealthcheckMetrics(): HealthcheckMetrics {
  const states = new Map<string, number>();
  const totals = new Map<string, number>();
  return {
    observe(name, type, isHealthy) {
      const status = isHealthy ? 'success' : 'error';
      states.set(`kubernetes_healthcheck{name="${name}",type="${type}"}`, isHealthy ? 1 : 0);
      const total = `kubernetes_healthchecks_total{name="${name}",status="${status}",type="${type}"}`;
      totals.set(total, (totals.get(total) ?? 0) + 1);
    },
    render: () =>
      [
        '# HELP kubernetes_healthcheck Whether a health check passed when it last ran.',
        '# TYPE kubernetes_healthcheck gauge',
        ...linesOf(states),
        '# HELP kubernetes_healthchecks_total Results of all runs of a health check.',
        '# TYPE kubernetes_healthchecks_total counter',
        ...linesOf(totals),
        '',
      ].join('\n'),
  };
}

const linesOf = (values: ReadonlyMap<string, number>): string[] =>
  [...values].map(([series, value]) => `${series} ${value}`).sort();
