import { createHash } from 'node:crypto';
import { trustPublicAuthorities } from '../../kube/public-authorities.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import { KubeletError } from '../kubelet-error.ts';
import { MANIFEST_TYPES } from './manifest.ts';
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

const MAX_MANIFEST_BYTES = 4 << 20;
const ANSWER_MS = 30_000;

/** Opens a repository; the first request is sent later. All methods throw FairleadError "ErrImagePull". */
export function openRegistry(reference: ImageReference, options: RegistryOptions = {}): Registry {
  const { registry, repository } = reference;
  const host = registry === 'docker.io' ? 'registry-1.docker.io' : registry;
  const base = `${isPlain(registry, options.plainHttp ?? []) ? 'http' : 'https'}://${host}/v2/${repository}`;
  const name = formatReference(reference);
  let authorization = '';

  const send = async (url: string, headers: Record<string, string>): Promise<Response> => {
    // The timeout applies to the start of the response: a large blob may take longer.
    const slow = new AbortController();
    const timer = setTimeout(() => slow.abort(lateness()), ANSWER_MS);
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
  const get = async (path: string, headers: Record<string, string>): Promise<Response> => {
    const once = () => send(base + path, authorization ? { ...headers, authorization } : headers);
    let response = await once();
    if (response.status === 401) {
      await response.body?.cancel();
      authorization = await authorize(response.headers.get('www-authenticate') ?? '');
      response = await once();
    }
    if (response.ok) return response;
    const reason = reasonOf((await response.text()).slice(0, 4096));
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
    const answer = (await response.json()) as { token?: string; access_token?: string };
    return `Bearer ${answer.token ?? answer.access_token ?? ''}`;
  };

  return {
    async manifest(tagOrDigest) {
      const response = await get(`/manifests/${tagOrDigest}`, { accept: MANIFEST_TYPES.join(', ') });
      const chunks: Uint8Array[] = [];
      let size = 0;
      for await (const chunk of response.body ?? []) {
        size += chunk.length;
        if (size > MAX_MANIFEST_BYTES) throw pullError(name, 'its manifest is too large');
        chunks.push(chunk);
      }
      const data = Buffer.concat(chunks);
      const digest = `sha256:${createHash('sha256').update(data).digest('hex')}`;
      if (tagOrDigest.startsWith('sha256:') && tagOrDigest !== digest) {
        throw pullError(name, `the registry sent ${digest} for ${tagOrDigest}`);
      }
      return { text: data.toString('utf8'), digest };
    },
    async blob(digest, offset) {
      const response = await get(`/blobs/${digest}`, offset > 0 ? { range: `bytes=${offset}-` } : {});
      const resumed = response.status === 206;
      return { body: (response.body ?? []) as AsyncIterable<Uint8Array>, resumed: resumed && offset > 0 };
    },
  };
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

const lateness = (): FairleadError =>
  new FairleadError(`no answer within ${ANSWER_MS / 1000} s`, { op: 'pull image', code: 'ETIMEDOUT' });
