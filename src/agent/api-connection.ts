import type { Socket } from 'node:net';
import { limitUnacknowledged } from '../kernel/tcp-timeout.ts';
import type { CredentialSource } from '../kube/credential-source.ts';
import type { Credentials } from '../kube/credentials.ts';
import { failoverTransport, type ServerAddress } from '../kube/failover-transport.ts';
import { inClusterSource, kubeconfigSource } from '../kube/kubeconfig.ts';
import { httpTransport, type Transport, type TransportOptions } from '../kube/transport.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { AgentConfiguration } from './agent-configuration.ts';

export interface ApiConnectionOptions extends Pick<TransportOptions, 'onAnswer' | 'onBody'> {
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  /** Returns the addresses of API servers that the agent has learned; absent: none. */
  readonly known?: () => readonly string[];
  /** Called when an API server answers after a time in which none did. */
  readonly onReturn?: () => void;
}

/**
 * A name in the certificate of every API server of kubeadm, and of other installers, for their Service. Certificates of
 * nodes, which the same authority issues, do not have it; they may have the address.
 */
const SERVER_NAME = 'kubernetes.default.svc';
/** Timeout for a connection to one of several servers; a single one may take longer. */
const CONNECT_MS = 5000;
/**
 * How long the machine of an API server may acknowledge nothing, before requests and watches on its connections fail. A
 * server that is slow is not affected: its kernel acknowledges requests and keep-alive probes.
 */
const UNACKNOWLEDGED_MS = 8000;

/**
 * Connects to the configured API servers, and to those that the agent knows if none of these answers, with credentials
 * that are reloaded from their files. Throws if the kubeconfig is malformed, or if there is none and the agent is not in
 * a pod.
 */
export function connectToApi(
  { kubeconfig, server, servers }: Pick<AgentConfiguration, 'kubeconfig' | 'server' | 'servers'>,
  { clock, random, logger, known = () => [], onReturn = () => {}, onAnswer, onBody }: ApiConnectionOptions,
): Transport & { close(): void } {
  const configured = [...(server === null ? [] : [server]), ...servers];
  const following = {
    server: configured[0] ?? null,
    now: () => clock.now(),
    onProblem: (message: string) => logger.warn({}, message),
  };
  const source = kubeconfig === null ? inClusterSource(following) : kubeconfigSource(kubeconfig, following);
  // Not all agents of a cluster move to the same server.
  const offset = random();
  let count = 1;
  let isLimited = true;
  const limit = (socket: Socket) => {
    try {
      limitUnacknowledged(socket, UNACKNOWLEDGED_MS);
    } catch (error) {
      if (isLimited)
        logger.warn(
          {},
          `the failure of an API server's machine will be noticed late, after up to 30 s: ${messageOf(error)}`,
        );
      isLimited = false;
    }
  };
  return failoverTransport({
    async servers() {
      const addresses = serverAddresses(configured, await source.current(), rotated(known(), offset));
      count = addresses.length;
      return addresses;
    },
    open: (address) =>
      httpTransport(sourceOf(source, address), {
        ...(onAnswer === undefined ? {} : { onAnswer }),
        ...(onBody === undefined ? {} : { onBody }),
        onConnect: limit,
        connectMs: () => (count > 1 ? CONNECT_MS : Number.POSITIVE_INFINITY),
      }),
    onReturn,
    clock,
    random,
    logger,
  });
}

/**
 * Returns the addresses of API servers in the order of preference. Learned addresses are used only where the server's
 * certificate is verified: they come from the API, not from the administrator.
 */
export function serverAddresses(
  configured: readonly string[],
  credentials: Credentials,
  known: readonly string[],
): ServerAddress[] {
  const own = configured.length > 0 ? configured : [credentials.server];
  const isVerified =
    credentials.insecure !== true && own.every((url) => URL.parse(url)?.protocol === 'https:');
  const learned = isVerified ? known : [];
  const addresses = [
    ...own.map((url) => ({ url, serverName: null })),
    ...learned.map((url) => ({ url, serverName: credentials.serverName ?? SERVER_NAME })),
  ];
  const first = new Map<string, ServerAddress>();
  for (const address of addresses) {
    const href = URL.parse(address.url)?.href ?? address.url;
    if (!first.has(href)) first.set(href, address);
  }
  return [...first.values()];
}

/** Returns the list from a place on that `offset` (0 ≤ n < 1) chooses, and then its beginning. */
function rotated<T>(list: readonly T[], offset: number): T[] {
  const place = Math.floor(offset * list.length);
  return [...list.slice(place), ...list.slice(0, place)];
}

/** Returns the credentials for one server. */
function sourceOf(source: CredentialSource, { url, serverName }: ServerAddress): CredentialSource {
  return {
    async current() {
      const credentials = await source.current();
      return { ...credentials, server: url, ...(serverName === null ? {} : { serverName }) };
    },
    refused: () => source.refused(),
  };
}
