import type { GatewayRequest } from '../decision.ts';
import type { GatewayObject, GatewayObjects } from '../objects.ts';

/** A second implementation of Ingress, from the words of its API: all paths of all Ingresses are looked at. */
interface Path {
  readonly path: string;
  readonly pathType: string;
  readonly backend: { readonly service: { readonly name: string } };
}

interface IngressSpec {
  readonly rules?: readonly { readonly host?: string; readonly http: { readonly paths: readonly Path[] } }[];
  readonly defaultBackend?: { readonly service: { readonly name: string } };
}

interface Candidate {
  /** Compared in this order; the larger wins. */
  readonly keys: readonly number[];
  readonly name: string;
  readonly backend: string;
}

/** Returns the Service that a request without TLS gets, "503" or "404". */
export function referenceIngress(objects: GatewayObjects, request: GatewayRequest): string {
  const host = request.host.toLowerCase().replace(/:\d+$/, '');
  const [path = ''] = request.target.split('?');
  const found: Candidate[] = [];
  for (const ingress of objects.ingresses) {
    const { rules = [], defaultBackend } = ingress.spec as IngressSpec;
    const backend = (service: { readonly name: string }) => {
      const own = objects.services.some(
        ({ metadata }) =>
          metadata?.name === service.name && metadata.namespace === ingress.metadata?.namespace,
      );
      return own ? `${ingress.metadata?.namespace}/${service.name}` : '503';
    };
    rules.forEach((rule, ruleIndex) => {
      const specificity = hostSpecificity(rule.host, host);
      rule.http.paths.forEach((one, pathIndex) => {
        if (specificity < 0 || !pathMatches(one, path)) return;
        const length = one.pathType === 'Exact' ? one.path.length : one.path.replace(/\/+$/, '').length || 1;
        const keys = [specificity, 1, one.pathType === 'Exact' ? 1 : 0, length, ...age(ingress)];
        const place = `${String(ruleIndex).padStart(4, '0')} ${String(pathIndex).padStart(4, '0')}`;
        found.push({ keys, name: `${nameOf(ingress)} ${place}`, backend: backend(one.backend.service) });
      });
    });
    if (!defaultBackend) continue;
    // For its own hosts after their paths, and for every host after everything else.
    for (const own of [...rules.map((rule) => rule.host), undefined]) {
      const specificity = hostSpecificity(own, host);
      const withoutRules = rules.length === 0 ? 1 : 0;
      if (specificity >= 0)
        found.push({
          keys: [specificity, 0, withoutRules, ...age(ingress)],
          name: nameOf(ingress),
          backend: backend(defaultBackend.service),
        });
    }
  }
  const [best] = found.sort((a, b) => compare(a.keys, b.keys) || (a.name < b.name ? -1 : 1));
  return best?.backend ?? '404';
}

const nameOf = ({ metadata }: GatewayObject) => `${metadata?.namespace}/${metadata?.name}`;
const age = ({ metadata }: GatewayObject) => [-Date.parse(metadata?.creationTimestamp ?? '')];

function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : (b[at] ?? 0) - (a[at] ?? 0);
}

/** A whole name before wildcards before no host; -1: the rule is not for this host. A wildcard stands for one label. */
function hostSpecificity(rule: string | undefined, host: string): number {
  if (rule === undefined) return 0;
  if (!rule.startsWith('*.')) return rule === host ? 1000 : -1;
  const [label = '', ...rest] = host.split('.');
  return label !== '' && rest.join('.') === rule.slice(2) ? rule.length : -1;
}

function pathMatches({ path, pathType }: Path, given: string): boolean {
  if (pathType === 'Exact') return path === given;
  const wanted = path.replace(/\/+$/, '');
  return given === wanted || given.startsWith(`${wanted}/`);
}
