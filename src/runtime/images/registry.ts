import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { ProxyVariables } from '../../kube/proxy-environment.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { KubeletError } from '../kubelet-error.ts';
import { MANIFEST_TYPES, MAX_MANIFEST_BYTES } from './manifest.ts';
import { formatReference, type ImageReference } from './reference.ts';
import { type EndpointOptions, endpointsOf, type RegistryEndpoint, targetOf } from './registry-endpoint.ts';
import { followRedirects } from './registry-request.ts';

export interface RegistryCredentials {
  readonly username: string;
  readonly password: string;
}

export interface RegistryOptions extends EndpointOptions {
  readonly credentials?: RegistryCredentials | null;
  /** The proxies of the environment. */
  readonly proxies?: ProxyVariables | null;
  readonly signal?: AbortSignal;
  readonly patience?: Patience;
}

/** How long a registry is waited for. */
export interface Patience {
  /** To the start of a response. */
  readonly answerMs: number;
  /** For a whole response that is not a blob. */
  readonly documentMs: number;
  /** For this many bytes of a blob, or its rest. */
  readonly idleMs: number;
  readonly minBytes: number;
}

/** A repository of a registry, by the distribution API (OCI distribution-spec 1.1). */
export interface Registry {
  /** Returns a manifest by tag or digest; a digest is verified. */
  manifest(tagOrDigest: string): Promise<{ readonly text: string; readonly digest: string }>;
  /** Requests a blob from an offset; `resumed` false: the registry sends the whole blob. */
  blob(
    digest: string,
    offset: number,
  ): Promise<{ readonly body: AsyncIterable<Uint8Array>; readonly resumed: boolean }>;
}

/** Bytes of a token's or an error's document. */
const MAX_ANSWER_BYTES = 64 * 1024;
/** What helps where registries are out of reach. */
const WITHOUT_INTERNET =
  'without internet: docker save IMAGE | fairlead image load -; behind a proxy: set HTTPS_PROXY, for nodes in the shell that runs "fairlead up"';
/** Slower than any modem: nine blobs at once, of three pulls, over 160 kbit/s. */
const PATIENCE: Patience = {
  answerMs: 30_000,
  documentMs: 60_000,
  idleMs: 60_000,
  minBytes: 128 << 10,
};

/** The causes that a machine without a way to the internet has. */
const UNREACHABLE = [
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENETUNREACH',
  'EHOSTUNREACH',
  'ETIMEDOUT',
  'refused-by-proxy',
];

/**
 * Opens a repository at its registry, or at another endpoint of it; the first request is sent later. All methods throw
 * FairleadError "ErrImagePull".
 */
export function openRegistry(
  reference: ImageReference,
  options: RegistryOptions = {},
  endpoint = endpointsOf(reference, options).at(-1),
): Registry {
  const { answerMs, documentMs, idleMs, minBytes } = options.patience ?? PATIENCE;
  const name = formatReference(reference);
  if (!endpoint) throw pullError(name, `${reference.registry} is not the address of a registry`);
  const registry = endpoint.isMirror ? endpoint.url.host : reference.registry;
  // Credentials are for the registry, not for its mirrors.
  const credentials = endpoint.isMirror ? null : (options.credentials ?? null);
  let authorization = '';

  /** Requests a document, through redirects. */
  const send = async (first: URL, headers: Record<string, string>): Promise<IncomingMessage> => {
    // The timeout applies to the start of the response: a large blob may take longer.
    const slow = new AbortController();
    const timer = setTimeout(() => slow.abort(lateness(answerMs)), answerMs);
    const signal = options.signal ? AbortSignal.any([options.signal, slow.signal]) : slow.signal;
    const state = { url: first };
    try {
      const proxies = options.proxies ?? null;
      return await followRedirects(first, { endpoint, headers, proxies, signal }, (url) => (state.url = url));
    } catch (error) {
      if (hasCode(error, 'bad-image')) throw pullError(name, `${registry} ${messageOf(error)}`);
      const cause = signal.aborted ? signal.reason : error;
      throw pullError(name, `cannot reach ${state.url.host}: ${causeOf(cause)}`, cause);
    } finally {
      clearTimeout(timer);
    }
  };
  const document = (response: IncomingMessage, maxBytes: number) =>
    readDocument(response, { maxBytes, ms: documentMs, name });
  const get = async (path: string, headers: Record<string, string>): Promise<IncomingMessage> => {
    const url = new URL(endpoint.url);
    url.pathname += path;
    const once = () => send(url, authorization ? { ...headers, authorization } : headers);
    let response = await once();
    if (response.statusCode === 401) {
      response.destroy();
      authorization = await authorize(response.headers['www-authenticate'] ?? '');
      response = await once();
    }
    if (isOk(response)) return response;
    const reason = reasonOf((await document(response, MAX_ANSWER_BYTES)).toString('utf8'));
    throw pullError(name, refusalOf(response.statusCode ?? 0, registry, reason));
  };
  /** Answers a challenge (RFC 7235; distribution's token authentication). */
  const authorize = async (challenge: string): Promise<string> => {
    const basic = credentials
      ? `Basic ${Buffer.from(`${credentials.username}:${credentials.password}`).toString('base64')}`
      : '';
    if (/^basic\b/i.test(challenge)) {
      if (basic) return basic;
      throw pullError(name, `${registry} requires a user name and password: set imagePullSecrets`);
    }
    const url = tokenAddress(challenge, endpoint);
    if (url === null) {
      throw pullError(
        name,
        `${registry} requires an unsupported kind of authentication: ${challenge.slice(0, 100)}`,
      );
    }
    const response = await send(url, basic ? { authorization: basic } : {});
    if (!isOk(response)) {
      response.destroy();
      throw pullError(
        name,
        `${url.host} denied a token (${response.statusCode}): the repository does not exist, or imagePullSecrets are needed`,
      );
    }
    const answer = parseToken((await document(response, MAX_ANSWER_BYTES)).toString('utf8'));
    if (answer === null) throw pullError(name, `${url.host} sent no token`);
    return `Bearer ${answer}`;
  };

  return {
    async manifest(tagOrDigest) {
      const response = await get(`/manifests/${tagOrDigest}`, { accept: MANIFEST_TYPES.join(', ') });
      const data = await document(response, MAX_MANIFEST_BYTES);
      const digest = `sha256:${createHash('sha256').update(data).digest('hex')}`;
      if (tagOrDigest.startsWith('sha256:') && tagOrDigest !== digest) {
        throw pullError(name, `the registry sent ${digest} for ${tagOrDigest}`);
      }
      return { text: data.toString('utf8'), digest };
    },
    async blob(digest, offset) {
      const response = await get(`/blobs/${digest}`, offset > 0 ? { range: `bytes=${offset}-` } : {});
      const resumed = response.statusCode === 206;
      return { body: paced(response, idleMs, minBytes), resumed: resumed && offset > 0 };
    },
  };
}

const isOk = ({ statusCode = 0 }: IncomingMessage) => statusCode >= 200 && statusCode < 300;

/** Yields the chunks of a body; throws "ETIMEDOUT" if `minBytes` take longer than `ms`: time in which it waits for them. */
async function* paced(body: IncomingMessage, ms: number, minBytes: number): AsyncGenerator<Uint8Array> {
  let [left, bytes, since] = [ms, 0, performance.now()];
  for await (const chunk of timed(
    body,
    () => lateness(ms, minBytes),
    () => left,
  )) {
    left -= performance.now() - since;
    bytes += chunk.length;
    if (bytes >= minBytes) [left, bytes] = [ms, 0];
    yield chunk;
    since = performance.now();
  }
}

/** Yields the chunks of a body; throws `late` if one takes longer than `left`. Closes the body at the end. */
async function* timed(
  body: IncomingMessage,
  late: () => Error,
  left: () => number,
): AsyncGenerator<Uint8Array> {
  const chunks: AsyncIterator<Uint8Array> = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const end = Promise.withResolvers<never>();
      const timer = setTimeout(() => end.reject(late()), left());
      try {
        const next = await Promise.race([chunks.next(), end.promise]);
        if (next.done) return;
        yield next.value;
      } finally {
        clearTimeout(timer);
      }
    }
  } finally {
    body.destroy();
  }
}

/** Returns the address of the tokens that a challenge names; null: there is none, or it may not be asked. */
function tokenAddress(challenge: string, endpoint: RegistryEndpoint): URL | null {
  const fields = new Map(
    [...challenge.matchAll(/(?<![a-z_])([a-z_]+)="([^"]*)"/gi)].map(([, key = '', value = '']) => [
      key.toLowerCase(),
      value,
    ]),
  );
  const url = /^bearer\b/i.test(challenge) ? targetOf(endpoint, fields.get('realm') ?? '') : null;
  for (const key of ['service', 'scope']) {
    const value = fields.get(key);
    if (value) url?.searchParams.set(key, value);
  }
  return url;
}

/** Returns the token of an authorization server's answer (distribution's token authentication); null: it has none. */
function parseToken(text: string): string | null {
  try {
    const { token, access_token: accessToken } = JSON.parse(text) as Record<string, unknown>;
    const found = token ?? accessToken;
    // A header field's value (RFC 9110, 5.5).
    return typeof found === 'string' && /^[\x21-\x7e]+$/.test(found) ? found : null;
  } catch {
    return null;
  }
}

/** Reads a response. Refuses a response that is longer or slower than allowed. */
async function readDocument(
  response: IncomingMessage,
  { maxBytes, ms, name }: { readonly maxBytes: number; readonly ms: number; readonly name: string },
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let left = maxBytes;
  const until = performance.now() + ms;
  for await (const chunk of timed(
    response,
    () => lateness(ms),
    () => until - performance.now(),
  )) {
    left -= chunk.length;
    if (left < 0) throw pullError(name, `an answer of more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Returns the meaning of a registry's status. */
function refusalOf(status: number, registry: string, reason: string): string {
  switch (status) {
    case 401:
    case 403:
      return `${registry} denied access (${status}${reason}): the repository does not exist, or imagePullSecrets are needed`;
    case 404:
      return `not found in ${registry}${reason}`;
    case 429:
      return `${registry} limits the rate of pulls${reason}`;
    default:
      return `${registry} answered ${status}${reason}`;
  }
}

/** Returns the message of a registry's error document, in brackets. */
function reasonOf(text: string): string {
  try {
    const { errors = [] } = JSON.parse(text) as { errors?: { code?: string; message?: string }[] };
    const [first] = errors;
    return first ? ` (${[first.code, first.message].filter(Boolean).join(': ')})` : '';
  } catch {
    // A proxy's page, or no document: the status is sufficient.
    return '';
  }
}

function causeOf(error: unknown): string {
  if (hasCode(error, 'ENOTFOUND')) return 'no such host';
  if (hasCode(error, 'EAI_AGAIN')) return 'no name server answers';
  // Of each address that was tried; it has no message of its own.
  if (error instanceof AggregateError)
    return [...new Set(error.errors.map(messageOf))].slice(0, 3).join(', ');
  return messageOf(error);
}

function pullError(name: string, message: string, cause?: unknown): KubeletError {
  return new KubeletError('ErrImagePull', `failed to pull image ${JSON.stringify(name)}: ${message}`, {
    op: 'pull image',
    object: name,
    ...(UNREACHABLE.some((code) => hasCode(cause, code)) ? { hint: WITHOUT_INTERNET } : {}),
    cause,
  });
}

const lateness = (ms: number, bytes = 0): FairleadError =>
  new FairleadError(`${bytes > 0 ? `less than ${bytes} bytes` : 'no answer'} within ${ms / 1000} s`, {
    op: 'pull image',
    code: 'ETIMEDOUT',
  });
