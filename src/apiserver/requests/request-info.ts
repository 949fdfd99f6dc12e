/** The attributes of a request, as k8s.io/apiserver request.RequestInfo. */
export interface RequestInfo {
  readonly isResourceRequest: boolean;
  /** Without the query. */
  readonly path: string;
  /** "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"; else the method in lower case. */
  readonly verb: string;
  /** "" is the core group. */
  readonly apiGroup: string;
  readonly apiVersion: string;
  /** For a request to a namespace object: the namespace itself. */
  readonly namespace: string;
  readonly resource: string;
  readonly subresource: string;
  readonly name: string;
  /** The path after the subresource, with its leading slash, still escaped: the path of a proxy request. */
  readonly subpath: string;
  readonly labelSelector: string;
  readonly fieldSelector: string;
}

const NAMESPACE_SUBRESOURCES = new Set(['status', 'finalize']);
const VERBS: Readonly<Record<string, string>> = {
  POST: 'create',
  GET: 'get',
  HEAD: 'get',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
};

/** Reports whether Go's ParseBool-like conversion treats a query value as true: anything but "false" and "0". */
export function isTrue(value: string | null): boolean {
  return value !== null && value !== 'false' && value !== '0';
}

/**
 * Parses a request's path like k8s.io/apiserver RequestInfoFactory: /apis/GROUP/VERSION[/watch][/namespaces/NS]/
 * RESOURCE[/NAME[/SUBRESOURCE[/…]]]. Returns null if the path has a malformed escape.
 */
export function readRequestInfo(method: string, path: string, query: URLSearchParams): RequestInfo | null {
  const raw = path.split('/').slice(1);
  let parts: string[];
  try {
    parts = raw.map(decodeURIComponent);
  } catch {
    return null;
  }
  const plain: RequestInfo = {
    isResourceRequest: false,
    path,
    verb: method.toLowerCase(),
    apiGroup: '',
    apiVersion: '',
    namespace: '',
    resource: '',
    subresource: '',
    name: '',
    subpath: '',
    labelSelector: '',
    fieldSelector: '',
  };
  let at = 0;
  const next = () => parts[at++] ?? '';
  const root = next();
  if (root !== 'api' && root !== 'apis') return plain;
  if (parts.filter((part) => part !== '').length < (root === 'api' ? 3 : 4)) return plain;
  const apiGroup = root === 'api' ? '' : next();
  const apiVersion = next();
  let verb = VERBS[method] ?? '';
  const isLegacyWatch = parts[at] === 'watch' && parts.length > at + 1 && parts[at + 1] !== '';
  if (isLegacyWatch) {
    verb = 'watch';
    at++;
  }
  let namespace = '';
  if (parts[at] === 'namespaces' && parts[at + 1]) {
    namespace = parts[at + 1] ?? '';
    // /namespaces/NAME, /namespaces/NAME/status: the request is for the namespace object.
    const after = parts[at + 2] ?? '';
    if (after !== '' && !NAMESPACE_SUBRESOURCES.has(after)) at += 2;
  }
  const resource = next();
  let name = next();
  const subresource = next();
  const subpath = at < raw.length ? `/${raw.slice(at).join('/')}` : '';
  const labelSelector = query.get('labelSelector') ?? '';
  const fieldSelector = query.get('fieldSelector') ?? '';
  if (name === '' && (verb === 'get' || verb === 'watch')) {
    verb = isLegacyWatch || isTrue(query.get('watch')) ? 'watch' : 'list';
    // A list restricted to one name is authorized as a request for that object.
    const named = /(?:^|,)metadata\.name==?([^,=]+)(?:,|$)/.exec(fieldSelector)?.[1];
    if (named !== undefined) name = named;
  } else if (name === '' && verb === 'delete') verb = 'deletecollection';
  return {
    isResourceRequest: true,
    path,
    verb,
    apiGroup,
    apiVersion,
    namespace,
    resource,
    subresource,
    name,
    subpath,
    labelSelector,
    fieldSelector,
  };
}
