import { Counter, collectDefaultMetrics, Gauge, type Registry } from 'prom-client';
import type { TransportOptions } from '../kube/transport.ts';

/**
 * Registers the metrics of every Kubernetes component: process_*, nodejs_*, kubernetes_build_info and
 * rest_client_requests_total. `version` is "v1.36.0+fairlead.0.1.0".
 */
export function createProcessMetrics(
  registry: Registry,
  version: string,
): Required<Pick<TransportOptions, 'onAnswer'>> {
  collectDefaultMetrics({ register: registry });
  const [major = '', minor = ''] = version.replace(/^v/, '').split('.');
  new Gauge({
    name: 'kubernetes_build_info',
    help: 'The version of this program, as a constant 1',
    labelNames: ['git_version', 'major', 'minor', 'platform', 'compiler', 'go_version'],
    registers: [registry],
  }).set(
    {
      git_version: version,
      major,
      minor,
      platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
      compiler: 'node',
      go_version: '',
    },
    1,
  );
  const requests = new Counter({
    name: 'rest_client_requests_total',
    help: 'Requests to the API server by HTTP status, method and host',
    labelNames: ['code', 'host', 'method'],
    registers: [registry],
  });
  return { onAnswer: ({ host, method }, code) => requests.inc({ code, host, method }) };
}
