import { createHash } from 'node:crypto';
import { trustPublicAuthorities } from '../../kube/public-authorities.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { KubeletError } from '../kubelet-error.ts';
import { MANIFEST_TYPES, MAX_MANIFEST_BYTES } from './manifest.ts';
import { formatReference, type ImageReference } from './reference.ts';

export interface RegistryCredentials {
  readonly username: string;
  readonly password: string;
}

export interface RegistryOptions {
  readonly credentials?: RegistryCredentials | null;
  /** Registries ("HOST:PORT") that are contacted over plain HTTP; registries on loopback always are. */
  readonly plainHttp?: readonly string[];
  readonly signal?: AbortSignal;
  readonly patience?: Patience;
}

/** How long a registry is waited for. */
export interface Patience {
  /** To the start of a response. */
  readonly answerMs: number;
  /** For a whole response that is not a blob. */
  readonly documentMs: number;
  /** Without a byte of a blob. */
  readonly idleMs: number;
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
const PATIENCE: Patience = { answerMs: 30_000, documentMs: 60_000, idleMs: 60_000 };

/** Opens a repository; the first request is sent later. All methods throw FairleadError "ErrImagePull". */
export function openRegistry(reference: ImageReference, options: RegistryOptions = {}): Registry {
  const { registry, repository } = reference;
  const { answerMs, documentMs, idleMs } = options.patience ?? PATIENCE;
  const host = registry === 'docker.io' ? 'registry-1.docker.io' : registry;
  const base = `${isPlain(registry, options.plainHttp ?? []) ? 'http' : 'https'}://${host}/v2/${repository}`;
  const name = formatReference(reference);
  let authorization = '';

  const send = async (url: string, headers: Record<string, string>): Promise<Response> => {
    // The timeout applies to the start of the response: a large blob may take longer.
    const slow = new AbortController();
    const timer = setTimeout(() => slow.abort(lateness(answerMs)), answerMs);
    try {
      const signal = options.signal ? AbortSignal.any([options.signal, slow.signal]) : slow.signal;
      trustPublicAuthorities();
      return await fetch(url, { headers, signal });
    } catch (error) {
      throw pullError(name, `cannot reach ${new URL(url).host}: ${causeOf(error)}`, error);
    } finally {
      clearTimeout(timer);
    }
  };
  /** Reads a response; one that is longer or slower than allowed is refused. */
  const document = async (response: Response, maxBytes: number): Promise<Buffer> => {
    const chunks: Uint8Array[] = [];
    let left = maxBytes;
    const until = performance.now() + documentMs;
    for await (const chunk of timed(response.body, documentMs, () => until - performance.now())) {
      left -= chunk.length;
      if (left < 0) throw pullError(name, `an answer of more than ${maxBytes} bytes`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  };
  const get = async (path: string, headers: Record<string, string>): Promise<Response> => {
    const once = () => send(base + path, authorization ? { ...headers, authorization } : headers);
    let response = await once();
    if (response.status === 401) {
      await response.body?.cancel();
      authorization = await authorize(response.headers.get('www-authenticate') ?? '');
      response = await once();
    }
    if (response.ok) return response;
    const reason = reasonOf((await document(response, MAX_ANSWER_BYTES)).toString('utf8'));
    switch (response.status) {
      case 401:
      case 403:
        throw pullError(
          name,
          `${registry} denied access (${response.status}${reason}): the repository does not exist, or imagePullSecrets are needed`,
        );
      case 404:
        throw pullError(name, `not found in ${registry}${reason}`);
      case 429:
        throw pullError(name, `${registry} limits the rate of pulls${reason}`);
      default:
        throw pullError(name, `${registry} answered ${response.status}${reason}`);
    }
  };
  /** Answers a challenge (RFC 7235; distribution's token authentication). */
  const authorize = async (challenge: string): Promise<string> => {
    const { credentials } = options;
    const basic = credentials
      ? `Basic ${Buffer.from(`${credentials.username}:${credentials.password}`).toString('base64')}`
      : '';
    if (/^basic\b/i.test(challenge)) {
      if (basic) return basic;
      throw pullError(name, `${registry} requires a user name and password: set imagePullSecrets`);
    }
    const fields = new Map(
      [...challenge.matchAll(/([a-z_]+)="([^"]*)"/gi)].map(([, key = '', value = '']) => [
        key.toLowerCase(),
        value,
      ]),
    );
    const realm = fields.get('realm');
    if (!/^bearer\b/i.test(challenge) || !realm || !URL.canParse(realm)) {
      throw pullError(
        name,
        `${registry} requires an unsupported kind of authentication: ${challenge.slice(0, 100)}`,
      );
    }
    const url = new URL(realm);
    for (const key of ['service', 'scope']) {
      const value = fields.get(key);
      if (value) url.searchParams.set(key, value);
    }
    const response = await send(url.href, basic ? { authorization: basic } : {});
    if (!response.ok) {
      await response.body?.cancel();
      throw pullError(
        name,
        `${url.host} denied a token (${response.status}): the repository does not exist, or imagePullSecrets are needed`,
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
      const resumed = response.status === 206;
      return { body: timed(response.body, idleMs, () => idleMs), resumed: resumed && offset > 0 };
    },
  };
}

/** Yields the chunks of a body; throws "ETIMEDOUT" if one takes longer than `left`, of `ms` in all. Cancels the body at the end. */
async function* timed(body: Response['body'], ms: number, left: () => number): AsyncGenerator<Uint8Array> {
  if (!body) return;
  const reader = body.getReader();
  try {
    for (;;) {
      const late = Promise.withResolvers<never>();
      const timer = setTimeout(() => late.reject(lateness(ms)), left());
      try {
        const { done, value } = await Promise.race([reader.read(), late.promise]);
        if (done) return;
        yield value;
      } finally {
        clearTimeout(timer);
      }
    }
  } finally {
    await reader.cancel();
  }
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

/** Registries on loopback are contacted without TLS, as by Docker and containerd. */
function isPlain(registry: string, plainHttp: readonly string[]): boolean {
  const host = registry.replace(/:[0-9]+$/, '');
  return plainHttp.includes(registry) || host === 'localhost' || /^127\./.test(host) || host === '[::1]';
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
  const cause = (error as { cause?: unknown }).cause;
  if (hasCode(cause, 'ENOTFOUND')) return 'no such host';
  if (hasCode(cause, 'EAI_AGAIN')) return 'no name server answers on this node';
  return messageOf(cause ?? error);
}

function pullError(name: string, message: string, cause?: unknown): KubeletError {
  return new KubeletError('ErrImagePull', `failed to pull image ${JSON.stringify(name)}: ${message}`, {
    op: 'pull image',
    object: name,
    cause,
  });
}

const lateness = (ms: number): FairleadError =>
  new FairleadError(`no answer within ${ms / 1000} s`, { op: 'pull image', code: 'ETIMEDOUT' });
