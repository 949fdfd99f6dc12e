import { asRecord, createFindingList, type FindingList, type Raw, show } from './finding-list.ts';
import type { Finding, Protocol, ServiceOptions } from './model.ts';
import {
  BALANCE_ANNOTATION,
  FAILOVER_ANNOTATION,
  IGNORE_LABELS,
  IPVS_SCHEDULER_ANNOTATION,
  type ServiceObject,
} from './objects.ts';
import type { ParsedService, ServicePort } from './parsed-service.ts';
import { readAddresses, readClusterIPs, readIngress, readSourceRanges } from './service-addresses.ts';

const DEFAULT_OPTIONS: ServiceOptions = { ipvsScheduler: null, balance: 'random', failover: true };
const IPVS_SCHEDULERS = [
  'rr',
  'wrr',
  'lc',
  'wlc',
  'lblc',
  'lblcr',
  'sh',
  'dh',
  'sed',
  'nq',
  'mh',
  'fo',
  'ovf',
];
const BALANCES: readonly ServiceOptions['balance'][] = ['random', 'least-connections', 'maglev'];
/** The API's default and bound of clientIP.timeoutSeconds. */
const AFFINITY_DEFAULT = 10_800;
const AFFINITY_MAX = 86_400;

/**
 * Reads a Service. `service` is null if the proxy ignores it: headless, without an address, ExternalName,
 * or labelled for another proxy. Never throws; unusable parts are left out and reported as findings.
 */
export function readService(object: ServiceObject): {
  service: ParsedService | null;
  findings: readonly Finding[];
} {
  const raw = asRecord(object) ?? {};
  const meta = asRecord(raw['metadata']) ?? {};
  const namespace = typeof meta['namespace'] === 'string' ? meta['namespace'] : '';
  const name = typeof meta['name'] === 'string' ? meta['name'] : '';
  const findings = createFindingList('Service', namespace, name);
  const service = read(raw, meta, namespace, name, findings);
  return { service, findings: findings.result() };
}

function read(
  raw: Raw,
  meta: Raw,
  namespace: string,
  name: string,
  findings: FindingList,
): ParsedService | null {
  if (hasIgnoreLabel(meta)) return null;
  if (namespace === '' || name === '') {
    findings.add('InvalidName', 'metadata', 'a Service needs a name and a namespace', 'error');
    return null;
  }
  const spec = findings.record(raw, 'spec', 'spec');
  const type = findings.text(spec, 'type', 'spec.type') || 'ClusterIP';
  if (type === 'ExternalName') return null;
  const clusterIP = readClusterIPs(spec, findings);
  if (!clusterIP) return null;
  const externalIPs = readAddresses(spec, 'externalIPs', 'spec.externalIPs', 'InvalidExternalIP', findings);
  const external = readPolicy(spec, 'externalTrafficPolicy', findings) === 'Local';
  const reachable = type === 'NodePort' || type === 'LoadBalancer' || externalIPs.length > 0;
  const loadBalancerIPs = readIngress(raw, findings);
  return {
    namespace,
    name,
    createdAt: readTime(meta['creationTimestamp']),
    clusterIP,
    externalIPs,
    loadBalancerIPs,
    ports: readPorts(spec, namespace, name, findings),
    affinitySeconds: readAffinity(spec, findings),
    externalLocal: external && reachable,
    internalLocal: readPolicy(spec, 'internalTrafficPolicy', findings) === 'Local',
    sourceRanges: readSourceRanges(spec, loadBalancerIPs, findings),
    healthCheckNodePort: type === 'LoadBalancer' && external ? readHealthCheckPort(spec, findings) : 0,
    options: readOptions(meta, findings),
  };
}

/** Returns true if a label makes the proxy ignore the object, whatever its value. */
export function hasIgnoreLabel(meta: Raw): boolean {
  const labels = asRecord(meta['labels']);
  return labels !== null && IGNORE_LABELS.some((label) => label in labels);
}

/** Returns a protocol of the API ("TCP" if absent), or null for other values. */
export function readProtocol(value: unknown): Protocol | null {
  if (value === undefined || value === null || value === '') return 'TCP';
  return value === 'TCP' || value === 'UDP' || value === 'SCTP' ? value : null;
}

/** Returns true for a valid port number. */
export function isPort(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 65535;
}

function readPorts(spec: Raw, namespace: string, name: string, findings: FindingList): ServicePort[] {
  const ports: ServicePort[] = [];
  const names = new Set<string>();
  const numbers = new Set<string>();
  for (const [i, item] of findings.list(spec, 'ports', 'spec.ports').entries()) {
    const path = `spec.ports[${i}]`;
    const raw = asRecord(item);
    if (!raw) {
      findings.add('InvalidField', path, `${show(item)} must be an object with a port`);
      continue;
    }
    const portName = findings.text(raw, 'name', `${path}.name`);
    const protocol = readProtocol(raw['protocol']);
    const { port, nodePort = 0 } = raw;
    if (!protocol) {
      const problem = `${show(raw['protocol'])} is unknown: use TCP, UDP or SCTP`;
      findings.add('UnknownProtocol', `${path}.protocol`, problem, 'error');
    } else if (!isPort(port)) {
      findings.add(
        'InvalidPort',
        `${path}.port`,
        `${show(port)} is not a port number: use 1 to 65535`,
        'error',
      );
    } else if (names.has(`${portName} ${protocol}`)) {
      const problem = `${show(portName)} is also the name of an earlier ${protocol} port: use unique names`;
      findings.add('DuplicatePortName', `${path}.name`, problem, 'error');
    } else if (numbers.has(`${port} ${protocol}`)) {
      const problem = `${port}/${protocol} is listed twice: remove one; the first is served`;
      findings.add('DuplicatePort', `${path}.port`, problem, 'error');
    } else {
      names.add(`${portName} ${protocol}`);
      numbers.add(`${port} ${protocol}`);
      const usable = isPort(nodePort) ? nodePort : 0;
      if (usable === 0 && nodePort !== 0 && nodePort !== null) {
        findings.add(
          'InvalidPort',
          `${path}.nodePort`,
          `${show(nodePort)} is not a port number: use 1 to 65535`,
        );
      }
      ports.push({ owner: { namespace, name, portName, protocol }, port, nodePort: usable });
    }
  }
  return ports;
}

function readPolicy(spec: Raw, field: string, findings: FindingList): 'Cluster' | 'Local' {
  const value = findings.text(spec, field, `spec.${field}`);
  if (value === 'Local') return 'Local';
  if (value !== '' && value !== 'Cluster') {
    const problem = `${show(value)} is unknown: use Cluster or Local; Cluster is assumed`;
    findings.add('InvalidTrafficPolicy', `spec.${field}`, problem);
  }
  return 'Cluster';
}

function readAffinity(spec: Raw, findings: FindingList): number | null {
  const affinity = findings.text(spec, 'sessionAffinity', 'spec.sessionAffinity');
  if (affinity === '' || affinity === 'None') return null;
  if (affinity !== 'ClientIP') {
    const problem = `${show(affinity)} is unknown: use None or ClientIP; None is assumed`;
    findings.add('InvalidSessionAffinity', 'spec.sessionAffinity', problem);
    return null;
  }
  const config = findings.record(spec, 'sessionAffinityConfig', 'spec.sessionAffinityConfig');
  const clientIP = findings.record(config, 'clientIP', 'spec.sessionAffinityConfig.clientIP');
  const seconds = clientIP['timeoutSeconds'] ?? AFFINITY_DEFAULT;
  if (typeof seconds === 'number' && Number.isInteger(seconds) && seconds >= 1 && seconds <= AFFINITY_MAX) {
    return seconds;
  }
  findings.add(
    'InvalidSessionAffinity',
    'spec.sessionAffinityConfig.clientIP.timeoutSeconds',
    `${show(seconds)} is not a time: use 1 to ${AFFINITY_MAX} seconds; ${AFFINITY_DEFAULT} is assumed`,
  );
  return AFFINITY_DEFAULT;
}

function readHealthCheckPort(spec: Raw, findings: FindingList): number {
  const port = spec['healthCheckNodePort'];
  if (isPort(port)) return port;
  if (port !== undefined && port !== null && port !== 0) {
    findings.add(
      'InvalidPort',
      'spec.healthCheckNodePort',
      `${show(port)} is not a port number: use 1 to 65535`,
    );
  }
  return 0;
}

function readOptions(meta: Raw, findings: FindingList): ServiceOptions {
  const annotations = findings.record(meta, 'annotations', 'metadata.annotations');
  const choose = <T extends string>(
    annotation: string,
    choices: readonly T[],
    fallback: string,
  ): T | null => {
    const value = annotations[annotation];
    if (value === undefined) return null;
    const chosen = choices.find((choice) => choice === value);
    if (chosen !== undefined) return chosen;
    const problem = `${show(value)} is unknown: use one of ${choices.join(', ')}; ${fallback} is assumed`;
    findings.add('UnknownAnnotationValue', `metadata.annotations[${annotation}]`, problem);
    return null;
  };
  const ipvsScheduler = choose(IPVS_SCHEDULER_ANNOTATION, IPVS_SCHEDULERS, "the node's default");
  const balance = choose(BALANCE_ANNOTATION, BALANCES, DEFAULT_OPTIONS.balance) ?? DEFAULT_OPTIONS.balance;
  const failover = choose(FAILOVER_ANNOTATION, ['enabled', 'disabled'], 'enabled') !== 'disabled';
  return ipvsScheduler === null && balance === DEFAULT_OPTIONS.balance && failover
    ? DEFAULT_OPTIONS
    : { ipvsScheduler, balance, failover };
}

function readTime(value: unknown): number {
  const time =
    typeof value === 'string' ? Date.parse(value) : value instanceof Date ? value.getTime() : Number.NaN;
  return Number.isNaN(time) ? Number.POSITIVE_INFINITY : time;
}
