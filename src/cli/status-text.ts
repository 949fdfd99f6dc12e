import type { announcedAddresses } from '../cluster/announced-addresses.ts';
import type { EgressReport } from '../cluster/egress.ts';
import { type ServicePort, servicePortText } from '../cluster/service-port.ts';
import type { ClusterState } from '../cluster/state.ts';
import type { Output } from './command.ts';
import { wrapLines } from './help-text.ts';
import type { Problem } from './problem.ts';
import { type ProcessView, processTable } from './process-view.ts';
import type { IngressFacts } from './status-ingresses.ts';
import { formatTable } from './table.ts';
import { paint } from './terminal.ts';

/** The text of `status`. */
export interface StatusFacts {
  readonly name: string;
  readonly processes: readonly ProcessView[];
  readonly nodes: readonly {
    readonly name: string;
    readonly addresses: readonly string[];
    readonly mode: string;
    readonly ready: boolean;
    /** The number of pods on it. */
    readonly pods: number;
  }[];
  readonly services: readonly {
    readonly namespace: string;
    readonly name: string;
    readonly type: string;
    /** "10.96.0.1:80/TCP", "node:30080/TCP"; empty for a headless Service. */
    readonly frontends: readonly string[];
    /** Addresses of ready endpoints. */
    readonly ready: readonly string[];
    readonly endpoints: number;
    readonly summary: string;
    readonly loadBalancer: ReturnType<typeof announcedAddresses>;
  }[];
  readonly ingresses: readonly IngressFacts[];
  readonly ports: readonly {
    readonly port: number;
    readonly service: ServicePort;
    readonly status: string;
  }[];
  readonly egress: readonly EgressReport[];
  readonly problems: readonly Problem[];
  /** They do not make the cluster unhealthy. */
  readonly warnings: readonly string[];
}

/** Renders the answer of `status` for people: tables, then the verdict with the problems. */
export function statusText(
  facts: StatusFacts,
  { ipFamily, mode, apiPort }: Pick<ClusterState, 'ipFamily' | 'mode' | 'apiPort'>,
  output: Pick<Output, 'columns'>,
): string {
  const { columns } = output;
  const title = `cluster ${facts.name}: ${ipFamily}, mode ${mode}, API https://127.0.0.1:${apiPort}\n`;
  return [
    wrapLines(title, columns),
    processTable(facts.processes, columns),
    nodeTable(facts.nodes, columns),
    serviceTable(facts.services, columns),
    ...optionalTables(facts, columns),
    ...(facts.warnings.length === 0
      ? []
      : [wrapLines(facts.warnings.map((text) => `warning: ${text}\n`).join(''), columns)]),
    facts.problems.length === 0
      ? `${paint(output, 'good', 'everything is healthy')}\n`
      : `${paint(output, 'bad', 'unhealthy')}:\n${wrapLines(facts.problems.map(({ message }) => `  ${message}\n`).join(''), columns)}`,
  ].join('\n');
}

const nodeTable = (nodes: StatusFacts['nodes'], columns: number | null): string =>
  formatTable(
    [
      ['NODE', 'MODE', 'STATUS', 'PODS', 'ADDRESSES'],
      ...nodes.map((node) => [
        node.name,
        node.mode,
        node.ready ? 'Ready' : 'NotReady',
        String(node.pods),
        node.addresses.join(' '),
      ]),
    ],
    columns,
    ['PODS', 'ADDRESSES'],
  );

const serviceTable = (services: StatusFacts['services'], columns: number | null): string =>
  formatTable(
    [
      ['SERVICE', 'TYPE', 'ENDPOINTS', 'FRONTENDS'],
      ...services.map((one) => [
        `${one.namespace}/${one.name}`,
        one.type,
        one.summary,
        one.frontends.join(' ') || '-',
      ]),
    ],
    columns,
    ['TYPE'],
  );

/** The tables of what only some clusters have. */
function optionalTables(
  { services, ingresses, ports, egress }: StatusFacts,
  columns: number | null,
): string[] {
  const balanced = services.flatMap((one) =>
    one.loadBalancer.map(({ address, node }) => [address, `${one.namespace}/${one.name}`, node ?? 'none']),
  );
  const tables: readonly (readonly [heading: readonly string[], rows: readonly (readonly string[])[]])[] = [
    [['LOAD BALANCER', 'SERVICE', 'ANNOUNCED BY'], balanced],
    [
      ['INGRESS', 'CLASS', 'HOSTS', 'ADDRESSES'],
      ingresses.map((one) => [
        `${one.namespace}/${one.name}`,
        one.class,
        one.hosts.join(' '),
        one.addresses.join(' ') || '-',
      ]),
    ],
    [
      ['PUBLISHED PORT', 'SERVICE', 'STATUS'],
      ports.map((one) => [`127.0.0.1:${one.port}`, servicePortText(one.service), one.status]),
    ],
    [
      ['EGRESS', 'THROUGH', 'STATUS'],
      egress.map((one) => [
        one.family,
        one.uplinks.join(' ') || '-',
        one.problem === null ? 'Open' : 'Closed',
      ]),
    ],
  ];
  return tables
    .filter(([, rows]) => rows.length > 0)
    .map(([heading, rows]) => formatTable([heading, ...rows], columns, ['SERVICE', 'THROUGH']));
}
