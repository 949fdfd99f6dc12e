/** The name of the class that `up` creates. */
export const OWN_INGRESS_CLASS = 'fairlead';

export const NGINX_PREFIX = 'nginx.ingress.kubernetes.io/';

export const SUPPORTED_ANNOTATIONS: readonly string[] = [
  'rewrite-target',
  'use-regex',
  'ssl-redirect',
  'force-ssl-redirect',
  'app-root',
  'backend-protocol',
  'proxy-body-size',
  'proxy-connect-timeout',
  'proxy-read-timeout',
  'proxy-send-timeout',
  'whitelist-source-range',
  'allowlist-source-range',
  'enable-cors',
  'cors-allow-origin',
  'cors-allow-methods',
  'cors-allow-headers',
  'cors-expose-headers',
  'cors-allow-credentials',
  'cors-max-age',
  'canary',
  'canary-weight',
  'canary-weight-total',
  'canary-by-header',
  'canary-by-header-value',
  'canary-by-header-pattern',
];

/** The replacement of an annotation of ingress-nginx that is not applied. */
const REPLACEMENTS: readonly (readonly [RegExp, string])[] = [
  [/snippet$/, 'filters of an HTTPRoute rule (RequestHeaderModifier, RequestRedirect, URLRewrite)'],
  [/^auth-tls/, 'spec.tls.frontend.default.validation.caCertificateRefs of a Gateway'],
  [
    /^(?:auth|enable-global-auth|satisfy)/,
    'nothing in Gateway API v1.6: authenticate in the application or in a proxy before it',
  ],
  [/^affinity|^session-cookie/, 'rules[].sessionPersistence of an HTTPRoute'],
  [/^canary/, 'rules[].backendRefs[].weight and rules[].matches[].headers of an HTTPRoute'],
  [/^cors/, 'the CORS filter of an HTTPRoute rule'],
  [/^mirror/, 'the RequestMirror filter of an HTTPRoute rule'],
  [
    /^(?:permanent|temporal)-redirect|^from-to-www-redirect/,
    'the RequestRedirect filter of an HTTPRoute rule',
  ],
  [/^upstream-vhost/, 'urlRewrite.hostname of a URLRewrite filter of an HTTPRoute rule'],
  [
    /^(?:custom-headers|connection-proxy-header|x-forwarded-prefix|proxy-hide-headers)/,
    'the RequestHeaderModifier and ResponseHeaderModifier filters of an HTTPRoute rule',
  ],
  [/^proxy-ssl/, 'a BackendTLSPolicy'],
  [/^proxy-next-upstream/, 'rules[].retry of an HTTPRoute'],
  [/^ssl-passthrough/, 'a Gateway listener of protocol TLS with tls.mode Passthrough, and a TLSRoute'],
  [/^server-alias/, 'spec.hostnames of an HTTPRoute'],
  [/^denylist-source-range/, 'a NetworkPolicy, or allowlist-source-range'],
  [/^limit-/, 'nothing in Gateway API v1.6: limit requests in the application'],
];
const NO_REPLACEMENT = 'nothing in Gateway API v1.6';
const MAX_WARNINGS = 20;
const LONGEST_NAME = 100;

/**
 * Returns the warnings for a write of an Ingress of a class with these annotations: one for each annotation of ingress-nginx that is not
 * applied, with the field of the Gateway API that replaces it.
 */
export function ingressWarnings(className: string, annotations: Readonly<Record<string, unknown>>): string[] {
  // Without a class, it has the default one.
  if (className !== '' && className !== OWN_INGRESS_CLASS) return [];
  const names = Object.keys(annotations)
    .filter((key) => key.startsWith(NGINX_PREFIX))
    .map((key) => key.slice(NGINX_PREFIX.length))
    .filter((name) => !SUPPORTED_ANNOTATIONS.includes(name))
    .sort();
  const warnings = names.slice(0, MAX_WARNINGS).map((name) => {
    const replacement = REPLACEMENTS.find(([pattern]) => pattern.test(name))?.[1] ?? NO_REPLACEMENT;
    const shown = name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name;
    return `metadata.annotations[${NGINX_PREFIX}${shown}]: not applied; its replacement is ${replacement}`;
  });
  const more = names.length - warnings.length;
  return more > 0 ? [...warnings, `${more} more annotations of ingress-nginx are not applied`] : warnings;
}
