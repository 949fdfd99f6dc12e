import type { Registry } from 'prom-client';
import type { Node } from '../kube/types.ts';
import { FAMILY_NAMES, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { createHealthcheckMetrics, PROMETHEUS_TEXT } from '../lib/healthcheck-metrics.ts';
import type { Logger } from '../lib/log.ts';
import { type ZpageSource, zpage } from '../lib/zpages.ts';
import { createOneRequestServer, type OneRequestServer, type StatusRequest } from './one-request-server.ts';
import { registerProcessFigures } from './process-metrics.ts';
import type { ProxyMetrics } from './proxy-metrics.ts';

export interface StatusOptions {
  /** "address:port", or null for none. */
  readonly healthz: string | null;
  readonly metrics: string | null;
  readonly registry: Registry;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly health: () => ProxyHealth;
  readonly node: () => Node | undefined;
  /** Returns the version of the EndpointSlices that the kernel has; null: none. Absent: this process does not proxy. */
  readonly programmedSlices?: () => string | null;
  readonly mode: () => string;
  /** The response of /configz: the configuration with its defaults, by API group. */
  readonly configz: Readonly<Record<string, unknown>>;
  /** The response of /flagz: the command line's flags by name. */
  readonly flags: Readonly<Record<string, string>>;
  readonly version: string;
  /** Milliseconds of the clock. */
  readonly startedAt: number;
  /** Called if an address cannot be bound; null: retries forever. */
  readonly onBindFailure: ((error: Error) => void) | null;
  readonly count?: ProxyMetrics['answered'];
}

/** The health of the proxy; times in the clock's milliseconds. */
export interface ProxyHealth {
  readonly healthy: boolean;
  /** False if a restart may help: it does not help against a Node object without an address. */
  readonly live: boolean;
  /** The time up to which all changes are programmed. */
  readonly lastUpdated: number;
  readonly families: readonly IPFamily[];
  /** A problem other than late updates, or null. */
  readonly problem: string | null;
}

/** Adds problems that do not make the proxy unhealthy by themselves; null: none. */
export function withProblems(health: ProxyHealth, ...more: readonly (string | null)[]): ProxyHealth {
  const problems = [health.problem, ...more].filter((one) => one !== null);
  return { ...health, problem: problems.length > 0 ? problems.join('; ') : null };
}

const RETRY_MS = 5000;
/** The header that distinguishes these servers from kube-proxy's. */
export const SERVER_HEADER = 'fairlead';
/** The path of the version of the EndpointSlices by which a node forwards, which other nodes ask for. */
export const PROGRAMMED_PATH = '/programmed';
const DELETION_TAINT = 'ToBeDeletedByClusterAutoscaler';

/**
 * Serves load balancers, probes, other nodes and Prometheus: /healthz, /livez and /programmed on one address, /metrics, /metrics/slis,
 * /proxyMode, /configz, /statusz and /flagz on another, like kube-proxy. An address that is in use is retried.
 */
export function startStatusServers(options: StatusOptions): { close(): void } {
  const closers: (() => void)[] = [];
  if (options.healthz)
    closers.push(keepListening(options, 'healthzBindAddress', options.healthz, healthAnswer));
  if (options.metrics)
    closers.push(keepListening(options, 'metricsBindAddress', options.metrics, metricsAnswerer()));
  return {
    close() {
      for (const close of closers) close();
    },
  };
}

interface Answer {
  readonly code: number;
  readonly type: string;
  readonly body: string;
}
type Answerer = (
  options: StatusOptions,
  path: string,
  accept: string | undefined,
) => Promise<Answer> | Answer;

const json = (code: number, value: unknown): Answer => ({
  code,
  type: 'application/json',
  body: JSON.stringify(value),
});
const text = (code: number, body: string): Answer => ({ code, type: 'text/plain; charset=utf-8', body });

/** Returns the answer of the health server for a path. */
export function healthAnswer(
  options: Pick<StatusOptions, 'clock' | 'health' | 'node' | 'count' | 'programmedSlices'>,
  path: string,
): Answer {
  if (path === PROGRAMMED_PATH && options.programmedSlices)
    return json(200, { endpointSlices: options.programmedSlices() });
  const now = options.clock.now();
  const { live, lastUpdated, families, problem, ...health } = options.health();
  const healthy = path === '/livez' ? live : health.healthy;
  const times = {
    lastUpdated: new Date(healthy ? now : lastUpdated).toISOString(),
    currentTime: new Date(now).toISOString(),
  };
  const detail = {
    healthy,
    status: Object.fromEntries(
      families.map((family) => [
        FAMILY_NAMES[family],
        { lastUpdated: new Date(lastUpdated).toISOString(), healthy },
      ]),
    ),
    ...(problem === null ? {} : { problem }),
  };
  if (path === '/healthz') {
    const eligible = isEligible(options.node());
    const code = healthy && eligible ? 200 : 503;
    options.count?.('healthz', code);
    return json(code, { ...times, nodeEligible: eligible, ...detail });
  }
  if (path === '/livez') {
    const code = healthy ? 200 : 503;
    options.count?.('livez', code);
    return json(code, { ...times, ...detail });
  }
  return text(404, 'paths: /healthz, /livez\n');
}

/** A node that is about to be removed should get no new connections from load balancers (KEP-3836). */
function isEligible(node: Node | undefined): boolean {
  if (!node) return true;
  if (node.metadata?.deletionTimestamp) return false;
  return !(node.spec?.taints ?? []).some((taint) => taint.key === DELETION_TAINT);
}

function metricsAnswerer(): Answerer {
  const healthchecks = createHealthcheckMetrics();
  return async (options, path, accept) => {
    switch (path) {
      case '/metrics':
        registerProcessFigures(options.registry);
        return { code: 200, type: options.registry.contentType, body: await options.registry.metrics() };
      case '/metrics/slis':
        return { code: 200, type: PROMETHEUS_TEXT, body: healthchecks.render() };
      case '/healthz':
        healthchecks.observe('ping', 'healthz', true);
        return text(200, 'ok');
      case '/proxyMode':
        return text(200, options.mode());
      case '/configz':
        return json(200, options.configz);
      case '/statusz':
        return zpage('Statusz', zpageSource(options), accept);
      case '/flagz':
        return zpage('Flagz', zpageSource(options), accept);
      default:
        return text(404, `paths: ${PATHS.join(', ')}\n`);
    }
  };
}

const PATHS = ['/configz', '/flagz', '/healthz', '/metrics', '/metrics/slis', '/proxyMode', '/statusz'];

const zpageSource = ({ clock, startedAt, version, flags }: StatusOptions): ZpageSource => ({
  ...{ version, startedAt, flags },
  now: clock.now(),
  paths: PATHS,
});

function keepListening(options: StatusOptions, field: string, bind: string, answer: Answerer): () => void {
  const { host, port } = parseBindAddress(field, bind);
  let opened: OneRequestServer | null = null;
  let cancelRetry = () => {};
  const respond = async ({ path, accept }: StatusRequest) => {
    const { code, type, body } = await answer(options, path, accept);
    const headers = { 'content-type': type, 'x-content-type-options': 'nosniff', server: SERVER_HEADER };
    return { code, headers, body };
  };
  const open = () => {
    opened = createOneRequestServer(respond);
    const { server } = opened;
    server.on('error', (error) => {
      if (options.onBindFailure) {
        const code = errorCode((error as NodeJS.ErrnoException).code);
        const hint = `free ${bind}, or configure another address in ${field}`;
        options.onBindFailure(
          new FairleadError(`${field}: ${messageOf(error)}`, {
            op: 'listen',
            code,
            object: bind,
            hint,
            cause: error,
          }),
        );
        return;
      }
      options.logger.warn({ address: bind }, `${field}: ${messageOf(error)}; trying again`);
      cancelRetry = options.clock.after(RETRY_MS, open);
    });
    // Without a host, Node.js listens on :: as well, but does not compile its pattern of IPv6 addresses, which takes 5 ms.
    server.listen(host === '::' ? { port } : { host, port });
  };
  open();
  return () => {
    cancelRetry();
    opened?.close();
  };
}

/** Splits "address:port" and "[address]:port". Throws FairleadError naming the field. */
export function parseBindAddress(field: string, bind: string): { host: string; port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:]*)):([0-9]+)$/.exec(bind);
  const port = Number(match?.[3]);
  if (!match || port < 1 || port > 65535) {
    throw new FairleadError(`${field}: ${JSON.stringify(bind)} is not an address and port`, {
      op: 'read configuration',
      code: 'bad-config',
      hint: 'use the form 0.0.0.0:10256 or [::]:10256',
    });
  }
  return { host: match[1] ?? match[2] ?? '', port };
}
