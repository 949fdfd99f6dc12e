import { mkdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { Place } from '../gateway/haproxy/held-sockets.ts';
import { createProxyProcess, type ProxyProcess } from '../gateway/haproxy/proxy-process.ts';
import { digestOf } from '../gateway/haproxy/render.ts';
import {
  type Endpoint,
  type ProxySettings,
  type RefusedRow,
  type Rendering,
  serverName,
  withServers,
} from '../gateway/haproxy/rendering.ts';
import {
  commandLines,
  complaint,
  type SectionServers,
  serverChanges,
} from '../gateway/haproxy/server-changes.ts';
import type { Backend } from '../gateway/route-map.ts';
import { isMapped, mappedIds } from '../kernel/id-maps.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { findRefused } from './gateway-plan.ts';

/** What a proxy should do: the rendering of the plans, without some rows. */
export interface WantedProxy {
  readonly render: (excluded: ReadonlySet<string>) => Rendering;
  readonly places: readonly Place[];
  readonly endpointsOf: (backend: Backend) => readonly Endpoint[];
}

export interface GatewayProxy {
  readonly process: ProxyProcess;
  /** Rows that the proxy does not implement. */
  readonly refused: readonly RefusedRow[];
  /** Why the latest configuration is not in use; null: it is. */
  readonly problem: string | null;
  /** Makes the proxy do this: by its runtime API if only endpoints have changed, else by a new process. One call at a time. */
  apply(wanted: WantedProxy): Promise<void>;
  /** Changes the endpoints of the sections in use; false: a new process has to be started. One call at a time. */
  applyEndpoints(endpointsOf: WantedProxy['endpointsOf']): Promise<boolean>;
}

/** Checks of parts of a configuration to find rows that HAProxy refuses. */
const MAX_CHECKS = 24;
const MEMORY_MIB = 512;
const MAX_THREADS = 4;
/** Two buffers of 16 KiB each, so that all of them need less than the memory above. */
const MAX_CONNECTIONS = 10_000;
/** For listeners, threads and this proxy's own files. */
const RESERVED_FILES = 500;
/** Of Debian and others, where the package has no user of its own. */
const OVERFLOW_ID = 65_534;

export function createGatewayProxy(options: {
  readonly program: string;
  readonly folder: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onChange: () => void;
}): GatewayProxy {
  const { logger } = options;
  const process = createProxyProcess({ ...options, memoryMiB: MEMORY_MIB });
  let current: { readonly rendering: Rendering; readonly digest: string } | null = null;
  let servers = new Map<string, SectionServers>();
  let refused: readonly RefusedRow[] = [];
  let problem: string | null = null;
  /** Rows that HAProxy has refused before: they are left out until they change. */
  let excluded: ReadonlySet<string> = new Set();

  const start = async (rendering: Rendering, wanted: WantedProxy): Promise<string | null> => {
    // They may change while the process starts: what it has been given counts.
    const given = new Map<string, readonly Endpoint[]>();
    const endpointsOf = (backend: Backend): readonly Endpoint[] => {
      const endpoints = given.get(backend.key) ?? wanted.endpointsOf(backend);
      given.set(backend.key, endpoints);
      return endpoints;
    };
    const complaints = await process.replace({
      files: withServers(rendering, endpointsOf),
      places: wanted.places,
    });
    if (complaints !== null) return complaints;
    current = { rendering, digest: routesDigest(rendering, wanted.places) };
    servers = serversOf(rendering, endpointsOf);
    return null;
  };
  const changeServers = async (endpointsOf: WantedProxy['endpointsOf']): Promise<string | null> => {
    const commands = (current?.rendering.sections ?? []).flatMap((section) => {
      const known = servers.get(section.name);
      return section.backend && known ? serverChanges(section, known, endpointsOf(section.backend)) : [];
    });
    for (const line of commandLines(commands)) {
      const problem = complaint(await process.ask(line));
      if (problem !== null) return problem;
    }
    return null;
  };
  const reload = async (wanted: WantedProxy): Promise<void> => {
    let rendering = wanted.render(new Set());
    let complaints = await start(rendering, wanted);
    if (complaints !== null) {
      logger.warn({}, `the proxy refuses its configuration: ${complaints}`);
      const rows = [...new Set([...rendering.rowsOf.values()].flat())].sort();
      const check = (rows: ReadonlySet<string>) => start(wanted.render(rows), wanted);
      const found = await findRefused(rows, check, MAX_CHECKS);
      excluded = new Set(found.map(({ id }) => id));
      rendering = wanted.render(excluded);
      complaints = await start(rendering, wanted);
      refused = [...rendering.refused, ...found];
    } else {
      excluded = new Set();
      refused = rendering.refused;
    }
    problem = complaints;
  };

  return {
    process,
    get refused() {
      return refused;
    },
    get problem() {
      return problem;
    },
    async apply(wanted) {
      const rendering = wanted.render(excluded);
      if (current && process.isAnswering && current.digest === routesDigest(rendering, wanted.places)) {
        if (await this.applyEndpoints(wanted.endpointsOf)) return;
      }
      await reload(wanted);
    },
    async applyEndpoints(endpointsOf) {
      if (current === null) return false;
      try {
        const complaints = await changeServers(endpointsOf);
        if (complaints === null) return true;
        logger.info({}, `the proxy is started again, since its servers cannot be changed: ${complaints}`);
      } catch (error) {
        logger.warn({}, `the proxy is started again: ${messageOf(error)}`);
      }
      current = null;
      return false;
    },
  };
}

const routesDigest = ({ head, sections, files }: Rendering, places: readonly Place[]): string =>
  digestOf(
    new Map([
      ...files,
      ['head', head],
      ['sections', JSON.stringify(sections)],
      ['places', JSON.stringify(places)],
    ]),
  );

function serversOf(
  { sections }: Rendering,
  endpointsOf: WantedProxy['endpointsOf'],
): Map<string, SectionServers> {
  return new Map(
    sections.flatMap(({ name, backend }) =>
      backend
        ? [[name, { used: new Set(endpointsOf(backend).map(serverName)), parked: new Set<string>() }]]
        : [],
    ),
  );
}

/** Returns what a proxy on this machine can have: an unprivileged user, and a folder of which it cannot leave. */
export function proxySettings(folder: string): ProxySettings {
  const user = unprivilegedUser();
  const chroot = join(folder, 'empty');
  mkdirSync(chroot, { recursive: true, mode: 0o755 });
  return {
    threads: Math.max(1, Math.min(MAX_THREADS, availableParallelism())),
    maxConnections: Math.max(100, Math.min(MAX_CONNECTIONS, Math.floor((openFiles() - RESERVED_FILES) / 2))),
    user,
    chroot,
  };
}

/** Returns how many files a process may open: two for each connection. */
function openFiles(): number {
  const [, , hard] = /^Max open files +(\S+) +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
  return hard === 'unlimited' ? Number.MAX_SAFE_INTEGER : Number(hard ?? 1024);
}

function unprivilegedUser(): ProxySettings['user'] {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((one) => one.startsWith('haproxy:'));
  const [, , uid = String(OVERFLOW_ID), gid = String(OVERFLOW_ID)] = line?.split(':') ?? [];
  const ids = { uid: Number(uid), gid: Number(gid) };
  // In a user namespace that lacks these, its root, which has no rights on the machine, remains.
  return isMapped(mappedIds('uid'), ids.uid) && isMapped(mappedIds('gid'), ids.gid) ? ids : null;
}
