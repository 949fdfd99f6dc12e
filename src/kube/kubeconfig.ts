import { existsSync, readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parse } from 'yaml';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Credentials } from './transport.ts';

interface Kubeconfig {
  'current-context'?: string;
  contexts?: { name: string; context: { cluster: string; user: string } }[];
  clusters?: { name: string; cluster: Record<string, unknown> }[];
  users?: { name: string; user: Record<string, unknown> }[];
}

/** Where a pod finds its service account (KEP-1205). */
const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Reads the credentials of a kubeconfig's context (default: the current one). Throws naming the field that is wrong. */
export function readKubeconfig(file: string, contextName?: string): Credentials {
  const refuse = (message: string, cause?: unknown) =>
    new FairleadError(`kubeconfig ${file}: ${message}`, {
      op: 'read kubeconfig',
      code: 'bad-kubeconfig',
      object: file,
      ...(cause === undefined ? {} : { cause }),
    });
  let config: Kubeconfig;
  try {
    config = (parse(readFileSync(file, 'utf8')) ?? {}) as Kubeconfig;
  } catch (error) {
    throw refuse(messageOf(error), error);
  }
  const wanted = contextName ?? config['current-context'];
  const context = config.contexts?.find((entry) => entry.name === wanted)?.context;
  if (!context) throw refuse(`there is no context ${JSON.stringify(wanted ?? '')}`);
  const cluster = config.clusters?.find((entry) => entry.name === context.cluster)?.cluster;
  if (!cluster) throw refuse(`context ${wanted}: there is no cluster ${JSON.stringify(context.cluster)}`);
  const user = config.users?.find((entry) => entry.name === context.user)?.user ?? {};
  if (user['exec'] || user['auth-provider']) {
    throw refuse(
      `user ${context.user}: exec plugins are not supported; use a client certificate, a token or a token file`,
    );
  }
  // Data beats the file of the same name; a file's path counts from the kubeconfig's folder.
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
  return present({
    server,
    ca: pem(cluster, 'certificate-authority'),
    serverName: text(cluster, 'tls-server-name'),
    cert: pem(user, 'client-certificate'),
    key: pem(user, 'client-key'),
    token: text(user, 'token'),
    tokenFile: text(user, 'tokenFile'),
  });
}

/** The credentials of the pod that this process runs in. Throws when it runs in none. */
export function inClusterCredentials(env: NodeJS.ProcessEnv = process.env): Credentials {
  const host = env['KUBERNETES_SERVICE_HOST'];
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '443';
  if (!host || !existsSync(`${SERVICE_ACCOUNT}/token`)) {
    throw new FairleadError('there is no kubeconfig, and this is not a pod with a service account', {
      op: 'connect to API server',
      code: 'bad-kubeconfig',
      hint: 'name a kubeconfig in the configuration',
    });
  }
  return {
    server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    ca: readFileSync(`${SERVICE_ACCOUNT}/ca.crt`, 'utf8'),
    tokenFile: `${SERVICE_ACCOUNT}/token`,
  };
}

function present(fields: { [K in keyof Credentials]: Credentials[K] | undefined }): Credentials {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as unknown as Credentials;
}
