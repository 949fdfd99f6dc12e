import { type Clock, pause, systemClock } from '../lib/clock.ts';
import type { ApiRequest, ApiResponse, Transport } from './transport.ts';
import { apiVersionOf, type KubeObject, type Resource } from './types.ts';

/** The reasons of answers without one, such as kube-apiserver's to a path that it does not serve. */
const REASONS: Readonly<Record<number, string>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
};

/** A refusal by the API server, with the fields of meta/v1 Status. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  /** HTTP status code. */
  readonly status: number;
  /** "NotFound", "AlreadyExists", "Conflict", "Invalid", "Expired", … */
  readonly reason: string;
  readonly causes: readonly {
    readonly field?: string;
    readonly message?: string;
    readonly reason?: string;
  }[];
  /** The object of the refusal: its name, its plural kind and its uid. */
  readonly details: { readonly name?: string; readonly kind?: string; readonly uid?: string };
  /** Seconds after which to retry, if the server specifies them. */
  readonly retryAfter: number | null;
  /** Equals `reason`; every error here has a code. */
  readonly code: string;

  constructor(status: number, body: unknown, retryAfter: number | null, request: string) {
    const fields = (typeof body === 'object' && body !== null ? body : {}) as {
      message?: string;
      reason?: string;
      details?: {
        name?: string;
        kind?: string;
        uid?: string;
        retryAfterSeconds?: number;
        causes?: { field?: string; message?: string; reason?: string }[];
      };
    };
    super(fields.message ?? `${request}: HTTP status ${status}`);
    this.status = status;
    this.reason = fields.reason ?? REASONS[status] ?? `HTTP${status}`;
    this.code = this.reason;
    this.causes = fields.details?.causes ?? [];
    this.details = fields.details ?? {};
    this.retryAfter = retryAfter ?? fields.details?.retryAfterSeconds ?? null;
  }
}

/** Reports whether a write with a UID was refused because the object is another one: a patch's UID is a field, which is immutable. */
export const isOtherObject = (error: unknown): boolean =>
  hasReason(error, 'Invalid') &&
  error instanceof ApiError &&
  /\bmetadata\.uid: .*immutable/.test(error.message);

/** Reports whether an error is an ApiError with one of these reasons. */
export function hasReason(error: unknown, ...reasons: string[]): error is ApiError {
  return error instanceof ApiError && reasons.includes(error.reason);
}

export interface ListOptions {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly resourceVersion?: string;
  /** Objects per page; pages are fetched until the list is complete. */
  readonly limit?: number;
  readonly signal?: AbortSignal;
}

export interface KubeList<T> {
  readonly items: T[];
  readonly resourceVersion: string;
}

export interface WatchOptions extends Omit<ListOptions, 'limit'> {
  readonly timeoutSeconds?: number;
  /** Called when the server has accepted the watch, before its first event. */
  readonly onOpen?: () => void;
}

export type WatchEvent<T> =
  | { readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'; readonly object: T }
  | { readonly type: 'BOOKMARK'; readonly object: KubeObject };

export interface WriteOptions {
  readonly namespace?: string;
  readonly subresource?: string;
  readonly fieldManager?: string;
  readonly dryRun?: boolean;
  /** "Strict" refuses unknown fields; kubectl uses it. */
  readonly fieldValidation?: 'Strict' | 'Warn' | 'Ignore';
  readonly signal?: AbortSignal;
}

export interface DeleteOptions {
  readonly namespace?: string;
  readonly gracePeriodSeconds?: number;
  readonly propagationPolicy?: 'Background' | 'Foreground' | 'Orphan';
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly signal?: AbortSignal;
}

export type PatchType = 'json' | 'merge' | 'strategic' | 'apply';

const PATCH_CONTENT: Readonly<Record<PatchType, string>> = {
  json: 'application/json-patch+json',
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
  apply: 'application/apply-patch+yaml',
};

/** A client of a Kubernetes API server. Every call throws ApiError if the server refuses. */
export interface Client {
  /**
   * Lists objects; `transform` is applied page by page, so that a long list is never in memory as the server sends it.
   */
  list<T extends KubeObject>(
    resource: Resource<T>,
    options?: ListOptions & { readonly transform?: (object: T) => T },
  ): Promise<KubeList<T>>;
  get<T extends KubeObject>(
    resource: Resource<T>,
    name: string,
    namespace?: string,
    options?: { readonly signal?: AbortSignal },
  ): Promise<T>;
  create<T extends KubeObject>(resource: Resource<T>, object: T, options?: WriteOptions): Promise<T>;
  /** Replaces the object; a stale metadata.resourceVersion is a Conflict. */
  update<T extends KubeObject>(resource: Resource<T>, object: T, options?: WriteOptions): Promise<T>;
  /** Replaces only the object's status. */
  updateStatus<T extends KubeObject>(resource: Resource<T>, object: T, options?: WriteOptions): Promise<T>;
  patch<T extends KubeObject>(
    resource: Resource<T>,
    name: string,
    type: PatchType,
    patch: unknown,
    options?: WriteOptions & { readonly force?: boolean },
  ): Promise<T>;
  /** Deletes an object; resolves to the server's response: the object while it remains, else a Status. */
  delete(resource: Resource, name: string, options?: DeleteOptions): Promise<KubeObject>;
  /** Sets the replica count through the scale subresource. */
  scale(resource: Resource, name: string, namespace: string, replicas: number): Promise<void>;
  deleteCollection(resource: Resource, options?: ListOptions & DeleteOptions): Promise<void>;
  /** Yields events after `resourceVersion`; ends when the server ends the watch. Throws a 410 as ApiError "Expired". */
  watch<T extends KubeObject>(resource: Resource<T>, options: WatchOptions): AsyncGenerator<WatchEvent<T>>;
  /** Sends any other request, for instance POST of a subresource; resolves to the decoded JSON response. */
  request(
    method: ApiRequest['method'],
    path: string,
    body?: unknown,
    options?: { readonly signal?: AbortSignal },
  ): Promise<unknown>;
}

/** Maximum retries of a request that an overloaded server refuses (429, or 503 with Retry-After). */
const BUSY_RETRIES = 4;
const MAX_BUSY_WAIT_MS = 10_000;

/** Returns the path of a resource's collection, or of one object in it. */
export function pathOf(resource: Resource, namespace?: string, name?: string, subresource?: string): string {
  const root = resource.group === '' ? '/api' : `/apis/${resource.group}`;
  const scope = resource.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  const object = name === undefined ? '' : `/${encodeURIComponent(name)}`;
  return `${root}/${resource.version}${scope}/${resource.plural}${object}${subresource ? `/${subresource}` : ''}`;
}

/** Sends a request; rejects with ApiError for an answer of 400 or above. */
type Send = (request: Omit<ApiRequest, 'headers'>, contentType?: string) => Promise<ApiResponse>;

/** Creates a client that uses `transport`; `clock` times the delays that an overloaded server requests. */
export function createClient(transport: Transport, userAgent: string, clock: Clock = systemClock): Client {
  const send = createSender(transport, userAgent, clock);
  const call = async (request: Omit<ApiRequest, 'headers'>, contentType?: string): Promise<unknown> =>
    JSON.parse((await readBody((await send(request, contentType)).body)) || 'null');
  const write = <T extends KubeObject>(
    method: 'POST' | 'PUT',
    resource: Resource<T>,
    object: T,
    options: WriteOptions,
  ): Promise<T> => {
    const namespace = options.namespace ?? object.metadata?.namespace;
    const name = method === 'PUT' || options.subresource ? (object.metadata?.name ?? '') : undefined;
    const body = JSON.stringify({ apiVersion: apiVersionOf(resource), kind: resource.kind, ...object });
    const path = pathOf(resource, namespace, name, options.subresource) + query(writeQuery(options));
    return call({ method, path, body, ...signalOf(options) }, 'application/json') as Promise<T>;
  };

  return {
    async list<T extends KubeObject>(
      resource: Resource<T>,
      options: ListOptions & { readonly transform?: (object: T) => T } = {},
    ): Promise<KubeList<T>> {
      const { transform } = options;
      const items: T[] = [];
      for (let token = ''; ; ) {
        const path =
          pathOf(resource, options.namespace) +
          query({
            ...selectors(options),
            limit: options.limit,
            continue: token,
            resourceVersion: token === '' ? options.resourceVersion : undefined,
          });
        const page = (await call({ method: 'GET', path, ...signalOf(options) })) as {
          items?: T[];
          metadata?: { resourceVersion?: string; continue?: string };
        };
        for (const item of page.items ?? []) items.push(transform ? transform(item) : item);
        token = page.metadata?.continue ?? '';
        if (token === '') return { items, resourceVersion: page.metadata?.resourceVersion ?? '' };
      }
    },
    get: <T extends KubeObject>(
      resource: Resource<T>,
      name: string,
      namespace?: string,
      options: { signal?: AbortSignal } = {},
    ) => call({ method: 'GET', path: pathOf(resource, namespace, name), ...signalOf(options) }) as Promise<T>,
    create: (resource, object, options = {}) => write('POST', resource, object, options),
    update: (resource, object, options = {}) => write('PUT', resource, object, options),
    updateStatus: (resource, object, options = {}) =>
      write('PUT', resource, object, { ...options, subresource: 'status' }),
    patch: <T extends KubeObject>(
      resource: Resource<T>,
      name: string,
      type: PatchType,
      patch: unknown,
      options: WriteOptions & { force?: boolean } = {},
    ) => {
      const path =
        pathOf(resource, options.namespace, name, options.subresource) +
        query({ ...writeQuery(options), force: options.force });
      return call(
        { method: 'PATCH', path, body: JSON.stringify(patch), ...signalOf(options) },
        PATCH_CONTENT[type],
      ) as Promise<T>;
    },
    async delete(resource, name, options = {}) {
      const path = pathOf(resource, options.namespace, name);
      const body = JSON.stringify(deleteBody(options));
      const answer = await call({ method: 'DELETE', path, body, ...signalOf(options) }, 'application/json');
      return (answer ?? {}) as KubeObject;
    },
    async scale(resource, name, namespace, replicas) {
      const path = pathOf(resource, namespace, name, 'scale');
      const body = JSON.stringify({ spec: { replicas } });
      await call({ method: 'PATCH', path, body }, PATCH_CONTENT.merge);
    },
    async deleteCollection(resource, options = {}) {
      const path = pathOf(resource, options.namespace) + query(selectors(options));
      const body = JSON.stringify(deleteBody(options));
      await call({ method: 'DELETE', path, body, ...signalOf(options) }, 'application/json');
    },
    async *watch<T extends KubeObject>(resource: Resource<T>, options: WatchOptions) {
      const path =
        pathOf(resource, options.namespace) +
        query({
          ...selectors(options),
          watch: true,
          allowWatchBookmarks: true,
          resourceVersion: options.resourceVersion,
          timeoutSeconds: options.timeoutSeconds,
        });
      const response = await send({ method: 'GET', path, ...signalOf(options) });
      options.onOpen?.();
      for await (const line of lines(response.body)) {
        const event = JSON.parse(line) as WatchEvent<T> | { type: 'ERROR'; object: { code?: number } };
        if (event.type === 'ERROR')
          throw new ApiError(event.object.code ?? 500, event.object, null, `watch ${path}`);
        yield event;
      }
    },
    request: (method, path, body, options = {}) =>
      call(
        { method, path, ...(body === undefined ? {} : { body: JSON.stringify(body) }), ...signalOf(options) },
        body === undefined ? undefined : 'application/json',
      ),
  };
}

/** Repeats requests that an overloaded or starting server refuses before it processes them. */
function createSender(transport: Transport, userAgent: string, clock: Clock): Send {
  return async (request, contentType) => {
    for (let attempt = 0; ; attempt++) {
      const response = await transport({
        ...request,
        headers: {
          accept: 'application/json',
          'user-agent': userAgent,
          ...(contentType === undefined ? {} : { 'content-type': contentType }),
        },
      });
      if (response.status < 400) return response;
      const text = await readBody(response.body);
      const header = Number(response.headers['retry-after']);
      const error = new ApiError(
        response.status,
        parseJson(text),
        Number.isFinite(header) && header > 0 ? header : null,
        `${request.method} ${request.path.split('?')[0]}`,
      );
      // Priority and fairness (KEP-1040) refuses requests before processing them: a retry is safe.
      const busy = error.status === 429 && error.details.kind === undefined;
      const starting = error.status === 503 && error.retryAfter !== null;
      if (!(busy || starting) || attempt >= BUSY_RETRIES) throw error;
      await pause(clock, Math.min((error.retryAfter ?? 1) * 1000, MAX_BUSY_WAIT_MS), request.signal);
    }
  };
}

function selectors(options: ListOptions) {
  return { labelSelector: options.labelSelector, fieldSelector: options.fieldSelector };
}

function writeQuery(options: WriteOptions) {
  return {
    fieldManager: options.fieldManager,
    fieldValidation: options.fieldValidation,
    dryRun: options.dryRun ? 'All' : undefined,
  };
}

function deleteBody(options: DeleteOptions) {
  const { gracePeriodSeconds, propagationPolicy, uid, resourceVersion } = options;
  const preconditions = uid || resourceVersion ? { preconditions: { uid, resourceVersion } } : {};
  return { apiVersion: 'v1', kind: 'DeleteOptions', gracePeriodSeconds, propagationPolicy, ...preconditions };
}

function signalOf(options: { readonly signal?: AbortSignal }) {
  return options.signal ? { signal: options.signal } : {};
}

function query(fields: Record<string, string | number | boolean | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? '' : `?${text}`;
}

/** Reads the whole body of a response as text. */
export async function readBody(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

/** Yields the lines of a stream as text; chunks may split a line anywhere. */
async function* lines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  let pending: Buffer[] = [];
  for await (const chunk of body) {
    let rest = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      pending.push(rest.subarray(0, end));
      const line = (pending.length === 1 ? (pending[0] ?? rest) : Buffer.concat(pending)).toString('utf8');
      pending = [];
      rest = rest.subarray(end + 1);
      if (line.trim() !== '') yield line;
    }
    if (rest.length > 0) pending.push(rest);
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return { message: text.slice(0, 500) };
  }
}
