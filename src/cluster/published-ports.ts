import { closeSync, readFileSync } from 'node:fs';
import { identify, isRunning, type ProcessIdentity } from '../kernel/process-identity.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import type { Client } from '../kube/client.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { nodeNetns } from '../network/topology.ts';
import { checkLoopbackPort, type LoopbackListeners, listenOnLoopback } from './loopback-listeners.ts';
import { endProcesses } from './processes.ts';
import { copyHeldListener } from './rootless/held-listeners.ts';
import { isRootless } from './rootless/rootless.ts';
import { type Forwarding, followService, forwardToService } from './service-forwarding.ts';
import { type PublishedPort, publishedPortText } from './service-port.ts';
import {
  type ClusterState,
  clusterPaths,
  listClusters,
  readCluster,
  readSupervision,
  writeCluster,
} from './state.ts';
import { PUBLISHED_PORTS } from './supervision.ts';

const POLL_MS = 250;
const PATIENCE_MS = 1500;

/** The contents of published-ports.json, which the process that serves the ports writes. */
interface Report {
  readonly writer: ProcessIdentity | null;
  readonly ports: readonly PortReport[];
}

/** One published port as its process reports it. */
export interface PortReport {
  /** As --publish accepts it. */
  readonly text: string;
  /** Why the port is not open; null: it is open. */
  readonly problem: string | null;
}

/**
 * Serves the published ports of a cluster until the signal aborts or the cluster is removed; follows changes of
 * cluster.json. A port that is in use is tried again until it is free.
 */
export async function servePublishedPorts(
  name: string,
  options: {
    readonly client: Client;
    readonly clock: Clock;
    readonly random: () => number;
    readonly logger: Logger;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { clock, logger, signal } = options;
  const open = new Map<string, OpenPort>();
  const problems = new Map<string, string>();
  const writer = identify(process.pid);
  let nodes: ClusterState['nodes'] = [];
  let unsaved = '';
  const start = (port: PublishedPort): OpenPort => {
    const listeners = isRootless() ? copyListeners(name, port.localPort) : listenOnLoopback(port.localPort);
    const following = new AbortController();
    const followed = followService(port.service, {
      ...options,
      signal: AbortSignal.any([signal, following.signal]),
    });
    let forwarding: Forwarding | null = null;
    // Until then, the kernel queues connections.
    const started = followed.synced.then(
      () => {
        forwarding = forwardToService({
          listeners,
          service: port.service,
          route: followed.route,
          nodes: () => nodes.map((node) => ({ name: node.name, netns: nodeNetns(name, node.name) })),
          clock,
          onFailure: (text) => logger.warn({ port: publishedPortText(port) }, text),
        });
      },
      // The signal has aborted.
      () => {
        for (const fd of listeners.descriptors) closeSync(fd);
      },
    );
    return {
      isForwarding: () => forwarding !== null,
      async close() {
        following.abort();
        await started;
        forwarding?.close();
      },
    };
  };
  while (!signal.aborted) {
    const state = readCluster(name);
    if (!state) break;
    nodes = state.nodes;
    const wanted = new Map(state.publishedPorts.map((port) => [publishedPortText(port), port]));
    for (const [text, forwarding] of open) {
      if (wanted.has(text)) continue;
      await forwarding.close();
      open.delete(text);
      logger.info({ port: text }, 'port closed');
    }
    for (const [text, port] of wanted) {
      if (open.has(text)) continue;
      try {
        open.set(text, start(port));
        problems.delete(text);
        logger.info({ port: text }, 'port opened');
      } catch (error) {
        const problem = messageOf(error);
        if (problems.get(text) !== problem)
          logger.warn({ port: text }, `failed to open the port: ${problem}`);
        problems.set(text, problem);
      }
    }
    const ports = [...wanted.keys()].map((text) => ({
      text,
      problem:
        problems.get(text) ?? (open.get(text)?.isForwarding() ? null : 'the API server has not answered yet'),
    }));
    try {
      writeReport(name, { writer, ports });
      unsaved = '';
    } catch (error) {
      // For example on a full disk; the ports themselves work.
      if (unsaved !== messageOf(error)) logger.warn({}, `failed to write the report: ${messageOf(error)}`);
      unsaved = messageOf(error);
    }
    await pause(clock, POLL_MS, signal);
  }
  await Promise.all([...open.values()].map((forwarding) => forwarding.close()));
}

/** Returns copies of the sockets that the supervisor of an ordinary user's cluster has for a port. */
function copyListeners(name: string, port: number): LoopbackListeners {
  const descriptors = copyHeldListener(name, port);
  if (descriptors !== null) return { port, descriptors };
  throw new FairleadError(`port ${port} was not opened outside of the cluster's namespaces`, {
    op: 'publish ports',
    code: 'not-ready',
    hint: `fairlead up --name ${name}`,
  });
}

interface OpenPort {
  /** False until the API server has reported the Service. */
  isForwarding(): boolean;
  close(): Promise<void>;
}

function writeReport(name: string, report: Report): void {
  replaceFile(clusterPaths(name).publishedPorts, `${JSON.stringify(report, null, 2)}\n`);
}

/** Returns the state of each published port of a cluster, in its order. */
export function readPortReports({ name, publishedPorts }: ClusterState): PortReport[] {
  const { writer, ports } = readReport(name);
  const runs = isRunning(writer);
  return publishedPorts.map((port) => {
    const text = publishedPortText(port);
    const found = runs ? ports.find((one) => one.text === text) : undefined;
    return found ?? { text, problem: 'its process is not running' };
  });
}

/** Returns the ports that the process still serves, and that are no longer to be published. */
function earlierPorts({ name, publishedPorts }: ClusterState): string[] {
  const { writer, ports } = readReport(name);
  const wanted = new Set(publishedPorts.map(publishedPortText));
  return isRunning(writer) ? ports.map(({ text }) => text).filter((text) => !wanted.has(text)) : [];
}

function readReport(name: string): Report {
  try {
    return JSON.parse(readFileSync(clusterPaths(name).publishedPorts, 'utf8')) as Report;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return { writer: null, ports: [] };
    throw error;
  }
}

/**
 * Throws FairleadError unless each port can be opened: it is free, or `existing`, the cluster that is to publish it, has it
 * open. Null: a new cluster.
 */
export function checkPublishedPorts(ports: readonly PublishedPort[], existing: ClusterState | null): void {
  const reports = existing === null ? [] : readPortReports(existing);
  const own = (existing?.publishedPorts ?? []).filter((_, i) => reports[i]?.problem === null);
  for (const port of ports) {
    const refuse = (message: string, hint: string, cause?: unknown) =>
      new FairleadError(`--publish ${publishedPortText(port)}: ${message}`, {
        op: 'publish ports',
        code: 'EADDRINUSE',
        hint,
        ...(cause === undefined ? {} : { cause }),
      });
    const api = listClusters().find((name) => readCluster(name)?.apiPort === port.localPort);
    if (api !== undefined)
      throw refuse(
        `port ${port.localPort} is reserved for the API server of cluster ${api}`,
        'choose another local port',
      );
    if (own.some(({ localPort }) => localPort === port.localPort)) continue;
    try {
      checkLoopbackPort(port.localPort);
    } catch (error) {
      if (!(error instanceof FairleadError)) throw error;
      throw refuse(error.message, error.hint ?? 'choose another local port', error);
    }
  }
}

/** Replaces the published ports of an existing cluster. Connections through ports that remain are not interrupted. */
export async function changePublishedPorts(
  state: ClusterState,
  publishedPorts: readonly PublishedPort[],
): Promise<ClusterState> {
  const identity = readSupervision(state.name).processes[PUBLISHED_PORTS]?.identity ?? null;
  const changed = { ...state, publishedPorts };
  writeCluster(changed);
  // Without ports, the supervisor does not restart it.
  if (publishedPorts.length === 0 && isRunning(identity)) await endProcesses([identity], PATIENCE_MS);
  return changed;
}

/**
 * Waits until the published ports are open, and earlier ones closed. Throws FairleadError "not-ready" with the reasons when the
 * deadline aborts.
 */
export async function portsOpen(state: ClusterState, deadline: AbortSignal): Promise<void> {
  const unready = () => [
    ...readPortReports(state).filter(({ problem }) => problem !== null),
    ...earlierPorts(state).map((text) => ({ text, problem: 'it is no longer published, and still open' })),
  ];
  for (let left = unready(); left.length > 0; left = unready()) {
    if (deadline.aborted) {
      throw new FairleadError(left.map(({ text, problem }) => `port ${text}: ${problem}`).join('\n  '), {
        op: 'publish ports',
        code: 'not-ready',
      });
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
