import { ownMember } from '../../lib/own-member.ts';
import type { PlainResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import type { ApiServices } from '../services.ts';

/** A named check; returns null if healthy, else the cause. */
interface HealthCheck {
  readonly name: string;
  run(services: ApiServices): string | null;
}

/** Clients know the storage as "etcd". */
const CHECKS: readonly HealthCheck[] = [
  { name: 'ping', run: () => null },
  { name: 'log', run: () => null },
  { name: 'etcd', run: ({ store }) => store.problem() },
];
const READY_CHECKS: readonly HealthCheck[] = [
  ...CHECKS,
  { name: 'etcd-readiness', run: ({ store }) => store.problem() },
  { name: 'shutdown', run: ({ closing }) => (closing.aborted ? 'process is shutting down' : null) },
];
const GROUPS: Readonly<Record<string, readonly HealthCheck[]>> = {
  healthz: CHECKS,
  livez: CHECKS,
  readyz: READY_CHECKS,
};

/** Runs all checks, and returns the text of their metrics: no kubelet asks for the health of this server. */
export function healthcheckMetrics(services: ApiServices): string {
  for (const [group, checks] of Object.entries(GROUPS))
    for (const check of checks)
      services.healthchecks.observe(check.name, group, check.run(services) === null);
  return services.healthchecks.render();
}

/**
 * Answers /healthz, /livez and /readyz, whole or one check by name, with `?verbose` and `?exclude`; null for other
 * paths.
 */
export function healthResponse(services: ApiServices, context: RequestContext): PlainResponse | null {
  const [, group = '', name, ...rest] = context.info.path.split('/');
  const checks = ownMember(GROUPS, group);
  if (!checks || rest.length > 0) return null;
  const isOne = name !== undefined && name !== '';
  const asked = isOne ? checks.filter((check) => check.name === name) : checks;
  if (asked.length === 0) return null;
  const excluded = new Set(context.query.getAll('exclude'));
  const lines: string[] = [];
  let failed = false;
  for (const check of asked) {
    if (excluded.delete(check.name)) {
      lines.push(`[+]${check.name} excluded: ok`);
      continue;
    }
    const problem = check.run(services);
    if (problem !== null) failed = true;
    if (!isOne) services.healthchecks.observe(check.name, group, problem === null);
    lines.push(problem === null ? `[+]${check.name} ok` : `[-]${check.name} failed: ${problem}`);
  }
  if (excluded.size > 0) {
    const names = [...excluded].map((one) => JSON.stringify(one)).join(',');
    lines.push(`warn: some health checks cannot be excluded: no matches for ${names}`);
  }
  const headers = {
    'content-type': 'text/plain; charset=utf-8',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-cache, private',
  };
  if (failed) return { status: 500, headers, body: `${lines.join('\n')}\n${group} check failed\n` };
  const verbose = !isOne && context.query.has('verbose');
  return { status: 200, headers, body: verbose ? `${lines.join('\n')}\n${group} check passed\n` : 'ok' };
}
