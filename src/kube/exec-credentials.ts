import { execFile } from 'node:child_process';
import { isAbsolute, resolve } from 'node:path';
import { FairleadError, messageOf } from '../lib/errors.ts';

/** The part of Credentials that an exec plugin provides. */
export interface ExecutedCredentials {
  readonly token?: string;
  /** PEM texts. */
  readonly cert?: string;
  readonly key?: string;
  /** Milliseconds since 1970; null: valid as long as the process. */
  readonly expiresAt: number | null;
}

const API_VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'];
const TIMEOUT_MS = 60_000;

/**
 * Runs the exec plugin of a kubeconfig's user (client.authentication.k8s.io ExecCredential) and parses its output.
 * `folder` is that of the kubeconfig, to which a command with a slash is relative. Throws FairleadError
 * "bad-kubeconfig".
 */
export async function runExecPlugin(
  exec: Readonly<Record<string, unknown>>,
  folder: string,
  cluster: Readonly<Record<string, unknown>>,
): Promise<ExecutedCredentials> {
  const command = typeof exec['command'] === 'string' ? exec['command'] : '';
  const refuse = (message: string, cause?: unknown) =>
    new FairleadError(`exec plugin ${JSON.stringify(command)}: ${message}`, {
      op: 'get credentials',
      code: 'bad-kubeconfig',
      object: command,
      ...(typeof exec['installHint'] === 'string' ? { hint: exec['installHint'].trim() } : {}),
      ...(cause === undefined ? {} : { cause }),
    });
  const apiVersion = String(exec['apiVersion'] ?? '');
  if (!API_VERSIONS.includes(apiVersion)) {
    throw refuse(`apiVersion is ${JSON.stringify(apiVersion)}, not one of ${API_VERSIONS.join(', ')}`);
  }
  if (command === '') throw refuse('command is missing');
  const info = {
    apiVersion,
    kind: 'ExecCredential',
    spec: {
      interactive: false,
      ...(exec['provideClusterInfo'] === true
        ? {
            cluster: {
              server: cluster['server'],
              'tls-server-name': cluster['tls-server-name'],
              'insecure-skip-tls-verify': cluster['insecure-skip-tls-verify'],
              'certificate-authority-data': cluster['certificate-authority-data'],
            },
          }
        : {}),
    },
  };
  const variables = Array.isArray(exec['env']) ? (exec['env'] as { name?: string; value?: string }[]) : [];
  const output = await new Promise<string>((done, fail) => {
    const child = execFile(
      command.includes('/') && !isAbsolute(command) ? resolve(folder, command) : command,
      Array.isArray(exec['args']) ? exec['args'].map(String) : [],
      {
        timeout: TIMEOUT_MS,
        maxBuffer: 1 << 20,
        env: {
          ...process.env,
          ...Object.fromEntries(variables.map(({ name = '', value = '' }) => [name, value])),
          KUBERNETES_EXEC_INFO: JSON.stringify(info),
        },
      },
      (error, stdout, stderr) => {
        if (error) fail(refuse(`${messageOf(error).split('\n')[0]} ${stderr.trim()}`.trim(), error));
        else done(stdout);
      },
    );
    child.stdin?.end();
  });
  return readExecCredential(output, apiVersion, refuse);
}

function readExecCredential(
  output: string,
  apiVersion: string,
  refuse: (message: string, cause?: unknown) => FairleadError,
): ExecutedCredentials {
  let document: { apiVersion?: unknown; kind?: unknown; status?: Record<string, unknown> } | null;
  try {
    document = JSON.parse(output) as typeof document;
  } catch (error) {
    throw refuse(`its output is not JSON: ${messageOf(error)}`, error);
  }
  if (document?.kind !== 'ExecCredential' || document.apiVersion !== apiVersion) {
    throw refuse(`its output is not an ExecCredential of ${apiVersion}`);
  }
  const text = (field: string): string | undefined => {
    const value = document.status?.[field];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const [token, cert, key] = [text('token'), text('clientCertificateData'), text('clientKeyData')];
  if (token === undefined && cert === undefined)
    throw refuse('its output has neither a token nor a certificate');
  if ((cert === undefined) !== (key === undefined))
    throw refuse('its output has only one of certificate and key');
  const expires = Date.parse(text('expirationTimestamp') ?? '');
  return {
    ...(token === undefined ? {} : { token }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    expiresAt: Number.isNaN(expires) ? null : expires,
  };
}
