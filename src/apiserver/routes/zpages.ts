import { type ZpageSource, zpage } from '../../lib/zpages.ts';
import type { PlainResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import type { ApiServices } from '../services.ts';

/** The paths that kube-apiserver lists in /statusz. */
const PATHS = ['/flagz', '/healthz', '/livez', '/metrics', '/readyz', '/statusz', '/version'];

/** Answers /statusz or /flagz as kube-apiserver does, under its name: text, or an object of config.k8s.io. */
export async function zpageResponse(
  kind: 'Statusz' | 'Flagz',
  { version, startedAt, clock, flags }: ApiServices,
  { request }: RequestContext,
): Promise<PlainResponse> {
  const source: ZpageSource = {
    component: 'apiserver',
    version: version.gitVersion.replace(/[+-].*/, ''),
    startedAt,
    now: clock.now(),
    paths: PATHS,
    listsItself: true,
    flags,
  };
  const { code, type, body } = await zpage(kind, source, request.headers['accept']);
  return { status: code, headers: { 'content-type': type }, body };
}
