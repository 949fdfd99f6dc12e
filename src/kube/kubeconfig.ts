import { existsSync, readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parse } from 'yaml';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { readWrittenJson } from '../lib/written-json.ts';
import {
  type CredentialSource,
  type CredentialSourceOptions,
  createCredentialSource,
} from './credential-source.ts';
import type { Credentials } from './credentials.ts';
import { runExecPlugin } from './exec-credentials.ts';
import { readProxyVariables } from './proxy-environment.ts';
import { proxyProblem } from './proxy-tunnel.ts';

interface Kubeconfig {
  'current-context'?: string;
  contexts?: { name: string; context: { cluster: string; user: string } }[];
  clusters?: { name: string; cluster: Record<string, unknown> }[];
  users?: { name: string; user: Record<string, unknown> }[];
}

/** Path of a pod's service account (KEP-1205). */
const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** A context of a kubeconfig. */
export interface ReadContext {
  readonly credentials: Credentials;
  readonly cluster: Readonly<Record<string, unknown>>;
  /** The user's exec plugin. */
  readonly exec: Readonly<Record<string, unknown>> | null;
}

/**
 * Reads the credentials of a kubeconfig's context (default: the current one). Throws Error that names the invalid
 * field.
 */
export function readKubeconfig(file: string, contextName?: string): Credentials {
  const { credentials, exec } = readContext(file, contextName);
  if (exec === null) return credentials;
  throw refusal(file, 'the user has an exec plugin, which this command does not support');
}

/**
 * Follows a kubeconfig's context (default: the current one) while a process runs. Throws if the kubeconfig is malformed at
 * the start.
 */
export function kubeconfigSource(
  file: string,
  options: FollowOptions,
  contextName?: string,
): CredentialSource {
  const { cluster, exec } = readContext(file, contextName);
  return createCredentialSource({
    ...options,
    read: () => withEnvironment(readContext(file, contextName).credentials),
    execute: exec === null ? null : () => runExecPlugin(exec, dirname(file), cluster),
  });
}

/** Follows the service account of this process's pod. */
export function inClusterSource(options: FollowOptions): CredentialSource {
  return createCredentialSource({
    ...options,
    read: () => withEnvironment(inClusterCredentials(process.env, options.server)),
    execute: null,
  });
}

/** Adds the environment's proxies, which clients of real clusters use. */
function withEnvironment(credentials: Credentials): Credentials {
  const variables = readProxyVariables(process.env);
  return variables === null ? credentials : { ...credentials, proxyVariables: variables };
}

export type FollowOptions = Pick<CredentialSourceOptions, 'server' | 'now' | 'onProblem'>;

function refusal(file: string, message: string, cause?: unknown, hint?: string): FairleadError {
  return new FairleadError(`kubeconfig ${file}: ${message}`, {
    op: 'read kubeconfig',
    code: 'bad-kubeconfig',
    object: file,
    ...(hint === undefined ? {} : { hint }),
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Returns the names of a kubeconfig's contexts, and the current one. Throws if the file cannot be read. */
export function listContexts(file: string): {
  readonly current: string | null;
  readonly names: readonly string[];
} {
  const { contexts, 'current-context': current } = readConfig(file);
  return { current: current || null, names: (contexts ?? []).map(({ name }) => name) };
}

function readConfig(file: string): Kubeconfig {
  try {
    const text = readFileSync(file, 'utf8');
    return (readWrittenJson(text) ?? parse(text) ?? {}) as Kubeconfig;
  } catch (error) {
    if (hasCode(error, 'EACCES'))
      throw refusal(
        file,
        'only its owner may read it: permission denied',
        error,
        'run the command with sudo, or use a kubeconfig of yours',
      );
    throw refusal(file, messageOf(error), error);
  }
}

/**
 * Reads a context (default: the current one) without running its exec plugin. Throws Error that names the invalid
 * field.
 */
export function readContext(file: string, contextName?: string): ReadContext {
  const refuse = (message: string, cause?: unknown) => refusal(file, message, cause);
  const config = readConfig(file);
  const wanted = contextName ?? config['current-context'];
  const context = config.contexts?.find((entry) => entry.name === wanted)?.context;
  if (!context) throw refuse(`no such context: ${JSON.stringify(wanted ?? '')}`);
  const cluster = config.clusters?.find((entry) => entry.name === context.cluster)?.cluster;
  if (!cluster) throw refuse(`context ${wanted}: no such cluster: ${JSON.stringify(context.cluster)}`);
  const user = config.users?.find((entry) => entry.name === context.user)?.user ?? {};
  if (user['auth-provider'])
    throw refuse(
      `user ${context.user}: auth-provider is not supported, as in kubectl since 1.26; use an exec plugin`,
    );
  // Embedded data takes precedence over the file; paths are relative to the kubeconfig's folder.
  const pem = (source: Record<string, unknown>, field: string): string | undefined => {
    const data = source[`${field}-data`];
    if (typeof data === 'string' && data !== '') return Buffer.from(data, 'base64').toString('utf8');
    const path = source[field];
    if (typeof path !== 'string' || path === '') return undefined;
    try {
      return readFileSync(resolve(dirname(file), path), 'utf8');
    } catch (error) {
      throw refuse(`${field}: ${messageOf(error)}`, error);
    }
  };
  const text = (source: Record<string, unknown>, field: string): string | undefined => {
    const value = source[field];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const server = text(cluster, 'server');
  if (!server) throw refuse(`cluster ${context.cluster}: server is missing`);
  const tokenFile = text(user, 'tokenFile');
  const isInsecure = cluster['insecure-skip-tls-verify'] === true;
  const ca = pem(cluster, 'certificate-authority');
  if (isInsecure && ca !== undefined) {
    throw refuse(`cluster ${context.cluster}: insecure-skip-tls-verify with a certificate-authority`);
  }
  const proxyUrl = text(cluster, 'proxy-url');
  const badProxy = proxyUrl === undefined ? null : proxyProblem(proxyUrl);
  if (badProxy !== null) throw refuse(`cluster ${context.cluster}: proxy-url: ${badProxy}`);
  const headers = { ...passwordHeaders(user), ...impersonationHeaders(user) };
  const exec = user['exec'];
  return {
    cluster,
    exec: typeof exec === 'object' && exec !== null ? (exec as Record<string, unknown>) : null,
    credentials: present({
      server,
      ca,
      insecure: isInsecure ? true : undefined,
      serverName: text(cluster, 'tls-server-name'),
      cert: pem(user, 'client-certificate'),
      key: pem(user, 'client-key'),
      token: text(user, 'token'),
      tokenFile: tokenFile === undefined ? undefined : resolve(dirname(file), tokenFile),
      headers: Object.keys(headers).length > 0 ? headers : undefined,
      proxyUrl,
    }),
  };
}

type Headers = Record<string, string | readonly string[]>;

function passwordHeaders({ username, password }: Record<string, unknown>): Headers {
  if (typeof username !== 'string' || username === '') return {};
  const name = `${username}:${typeof password === 'string' ? password : ''}`;
  return { authorization: `Basic ${Buffer.from(name).toString('base64')}` };
}

/** Returns the headers by which a user acts as another one. */
function impersonationHeaders(user: Record<string, unknown>): Headers {
  const headers: Headers = {};
  const { as, 'as-uid': uid, 'as-groups': groups, 'as-user-extra': extra } = user;
  if (typeof as === 'string' && as !== '') headers['impersonate-user'] = as;
  if (typeof uid === 'string' && uid !== '') headers['impersonate-uid'] = uid;
  if (Array.isArray(groups) && groups.length > 0) headers['impersonate-group'] = groups.map(String);
  if (typeof extra === 'object' && extra !== null) {
    for (const [key, values] of Object.entries(extra))
      headers[`impersonate-extra-${encodeURIComponent(key).toLowerCase()}`] = [values].flat().map(String);
  }
  return headers;
}

/**
 * Reads the credentials of this process's pod. `server`: the API server's address, if not that in the pod's
 * environment. Throws if the process does not run in a pod.
 */
function inClusterCredentials(env: NodeJS.ProcessEnv, server: string | null): Credentials {
  const host = server ?? env['KUBERNETES_SERVICE_HOST'];
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '443';
  if (!host || !existsSync(`${SERVICE_ACCOUNT}/token`)) {
    throw new FairleadError(
      'no kubeconfig is configured, and the agent is not in a pod with a service account',
      {
        op: 'connect to API server',
        code: 'bad-kubeconfig',
        hint: 'set kubeconfig in the configuration',
      },
    );
  }
  return {
    server: server ?? `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    ca: readFileSync(`${SERVICE_ACCOUNT}/ca.crt`, 'utf8'),
    tokenFile: `${SERVICE_ACCOUNT}/token`,
  };
}

function present(fields: { [K in keyof Credentials]: Credentials[K] | undefined }): Credentials {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as unknown as Credentials;
}
