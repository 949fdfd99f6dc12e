import { existsSync, mkdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { readOptionalFile, removeOptionalFile } from '../../kernel/optional-file.ts';
import { replaceFile } from '../../kernel/replace-file.ts';
import { type Client, createClient } from '../../kube/client.ts';
import { readContext } from '../../kube/kubeconfig.ts';
import { singleKubeconfig } from '../../kube/kubeconfig-text.ts';
import type { Transport } from '../../kube/transport.ts';
import { type Clock, pause } from '../../lib/clock.ts';
import { describeError, FairleadError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { createSigningKey } from '../../lib/pki.ts';
import { type CertificateKeeper, keepCertificate } from './certificate-keeper.ts';
import { type CertificateStore, certificateStore, readPair } from './certificate-store.ts';
import { backoffMs, type CertificateTerms } from './renewal.ts';
import { obtainCertificate, requestName } from './signing-request.ts';

export interface IdentityOptions {
  readonly nodeName: string;
  /** The kubeconfig of this node; it is written if it is missing or unusable. */
  readonly kubeconfig: string;
  /** The kubeconfig with a bootstrap token; null: the node has joined before. */
  readonly bootstrapKubeconfig: string | null;
  readonly stateDir: string;
  /** Connects with the credentials of a kubeconfig. */
  readonly connect: (kubeconfig: string) => Transport & { close(): void };
  readonly userAgent: string;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

const PKI = 'pki';
const GROUP = 'system:nodes';
/** Between two attempts to join. */
const MAX_RETRY_MS = 60_000;

/** Returns the file of the client certificate and its key, named as the kubelet names it. */
const clientStore = (stateDir: string): CertificateStore =>
  certificateStore(join(stateDir, PKI, 'kubelet-client-current.pem'));

/** Returns the store of the certificate of the node's HTTPS server. */
export const servingStore = (stateDir: string): CertificateStore =>
  certificateStore(join(stateDir, PKI, 'kubelet-server-current.pem'));

/** Returns the subject of a node's certificates, by which the API server knows it. */
export function nodeTerms(nodeName: string, names: readonly string[] = []): CertificateTerms {
  return { commonName: `system:node:${nodeName}`, organizations: [GROUP], names: [...names] };
}

/**
 * Joins the cluster as a kubelet does, unless the kubeconfig of this node can be used: requests a client certificate with a
 * bootstrap token, and writes a kubeconfig that refers to it. Waits until the request is approved. Throws FairleadError if
 * there is neither a usable kubeconfig nor one with a token, or if the signal aborts.
 */
export async function joinCluster(options: IdentityOptions): Promise<void> {
  const { kubeconfig, bootstrapKubeconfig, clock, random, logger, signal } = options;
  const problem = kubeconfigProblem(options);
  if (problem === null) return;
  if (bootstrapKubeconfig === null || !existsSync(bootstrapKubeconfig)) {
    throw new FairleadError(
      `${problem}, and ${bootstrapKubeconfig === null ? 'no bootstrapKubeconfig is configured' : `${bootstrapKubeconfig} does not exist`}`,
      {
        op: 'join cluster',
        code: 'no-certificate',
        object: kubeconfig,
        hint: 'create a bootstrap token (kubeadm token create) and set bootstrapKubeconfig to a kubeconfig with it',
      },
    );
  }
  logger.info({}, `joining the cluster with ${bootstrapKubeconfig}: ${problem}`);
  let reported = '';
  for (let failures = 1; ; failures++) {
    try {
      await requestFirst(options, bootstrapKubeconfig);
      break;
    } catch (error) {
      signal.throwIfAborted();
      const text = describeError(error);
      if (text !== reported) logger.warn({}, `not joined yet, trying again: ${text}`);
      reported = text;
      await pause(clock, Math.min(backoffMs(failures, random()), MAX_RETRY_MS), signal);
      signal.throwIfAborted();
    }
  }
  logger.info({ kubeconfig }, 'joined the cluster');
}

/** Returns why the kubeconfig of this node cannot be used; null: it can. */
function kubeconfigProblem({ kubeconfig, nodeName, clock }: IdentityOptions): string | null {
  if (!existsSync(kubeconfig)) return `${kubeconfig} does not exist`;
  let credentials: ReturnType<typeof readContext>['credentials'];
  try {
    ({ credentials } = readContext(kubeconfig));
  } catch (error) {
    return describeError(error);
  }
  const { cert, key } = credentials;
  // A token or an exec plugin that the administrator configured: only the API server can check it.
  if (cert === undefined && key === undefined) return null;
  const held = readPair(cert ?? '', key ?? '');
  if (held === null) return `${kubeconfig} has no certificate with its key`;
  if (held.until <= clock.now())
    return `the certificate in ${kubeconfig} expired ${new Date(held.until).toISOString()}`;
  const { commonName } = nodeTerms(nodeName);
  return held.commonName === commonName
    ? null
    : `the certificate in ${kubeconfig} is of ${held.commonName}, not of ${commonName}`;
}

/** Requests the first certificate, and writes it and the kubeconfig. */
async function requestFirst(options: IdentityOptions, bootstrapKubeconfig: string): Promise<void> {
  const { stateDir, kubeconfig, nodeName, connect, userAgent, logger } = options;
  const store = clientStore(stateDir);
  const keyFile = join(stateDir, PKI, 'kubelet-client.key.tmp');
  const terms = nodeTerms(nodeName);
  mkdirSync(dirname(keyFile), { recursive: true, mode: 0o700 });
  const key = readOptionalFile(keyFile) ?? createSigningKey();
  // An agent that starts again while its request waits for approval finds it by the key.
  replaceFile(keyFile, key);
  const { cluster } = readContext(bootstrapKubeconfig);
  const transport = connect(bootstrapKubeconfig);
  let cert: string;
  try {
    cert = await obtainCertificate({
      ...options,
      client: createClient(transport, userAgent, options.clock),
      signer: 'client',
      terms,
      key,
      name: requestName(key, terms),
      onWaiting: (name) => logWaiting(logger, name),
    });
  } finally {
    transport.close();
  }
  const issued = readPair(cert, key);
  if (issued === null || issued.until <= options.clock.now()) {
    removeOptionalFile(keyFile);
    throw new FairleadError('the issued client certificate has expired, or is not of the requested key', {
      op: 'join cluster',
      code: 'no-certificate',
    });
  }
  store.write(issued);
  mkdirSync(dirname(kubeconfig), { recursive: true, mode: 0o700 });
  replaceFile(kubeconfig, nodeKubeconfig(cluster, dirname(bootstrapKubeconfig), store.file));
  removeOptionalFile(keyFile);
}

export function logWaiting(logger: Logger, name: string): void {
  logger.warn(
    {},
    `waiting for the approval of certificate signing request ${name}: kubectl certificate approve ${name}`,
  );
}

/** Renders a kubeconfig for the cluster of another one, whose user has its certificate and key in a file. */
function nodeKubeconfig(
  cluster: Readonly<Record<string, unknown>>,
  folder: string,
  certificate: string,
): string {
  const authority = cluster['certificate-authority'];
  const own =
    typeof authority === 'string' && authority !== '' && !cluster['certificate-authority-data']
      ? { ...cluster, 'certificate-authority': resolve(folder, authority) }
      : cluster;
  return singleKubeconfig('default', own, { 'client-certificate': certificate, 'client-key': certificate });
}

/**
 * Renews the client certificate of a node that has joined with a bootstrap token; null: its kubeconfig was given with other
 * credentials. `client`: with the node's own certificate; the bootstrap token is used again once that has expired.
 */
export function keepClientCertificate(
  options: IdentityOptions & {
    readonly client: Client;
    readonly onProblem: (problem: string | null) => void;
  },
): CertificateKeeper | null {
  const { kubeconfig, bootstrapKubeconfig, stateDir, nodeName, connect, userAgent, clock, logger } = options;
  const store = clientStore(stateDir);
  const known = readContext(kubeconfig).credentials.cert;
  const held = store.read();
  if (held === null || known === undefined || !known.includes(held.cert.trim())) return null;
  const keeper = keepCertificate({
    ...options,
    what: 'client certificate',
    store,
    terms: () => nodeTerms(nodeName),
    async obtain(terms, key, signal) {
      const current = keeper.current();
      const isExpired = current === null || current.until <= clock.now();
      const isUsable = isExpired && bootstrapKubeconfig !== null && existsSync(bootstrapKubeconfig);
      const transport = isUsable ? connect(bootstrapKubeconfig) : null;
      try {
        return await obtainCertificate({
          ...options,
          client: transport ? createClient(transport, userAgent, clock) : options.client,
          signer: 'client',
          terms,
          key,
          name: null,
          onWaiting: (name) => logWaiting(logger, name),
          signal,
        });
      } finally {
        transport?.close();
      }
    },
  });
  return keeper;
}
