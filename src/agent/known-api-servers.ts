import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { familyOf, hostPort } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

/** The file in the state directory with the addresses of the API servers. */
const FILE = 'api-servers.json';
/** The Service of the API servers. */
const API_SERVICE = { namespace: 'default', name: 'kubernetes' } as const;
/** The EndpointSlices of that Service, for a process that follows no others. A stricter cluster may forbid them. */
export const API_SERVICE_SLICES = {
  namespace: API_SERVICE.namespace,
  labelSelector: `${SERVICE_NAME_LABEL}=${API_SERVICE.name}`,
  optional: true,
} as const;

/** The addresses of the API servers themselves, for a start or a failure in which the configured ones do not answer. */
export interface KnownApiServers {
  /** Returns "https://10.0.0.1:6443", …: those of the EndpointSlices, or of an earlier run. */
  urls(): readonly string[];
  /** Learns the addresses from EndpointSlices, among which are those of the API servers' Service. */
  follow(slices: Pick<Informer<EndpointSlice>, 'handle'>): void;
}

/** Reads the addresses of an earlier run; writes them whenever they change. */
export function openKnownApiServers(stateDir: string, logger: Logger): KnownApiServers {
  const file = join(stateDir, FILE);
  const slices = new Map<string, EndpointSlice>();
  let urls = readUrls(file, logger);
  let isUnwritten = false;
  const change = (slice: EndpointSlice, isThere: boolean) => {
    const { name = '', namespace, labels } = slice.metadata ?? {};
    if (namespace !== API_SERVICE.namespace || labels?.[SERVICE_NAME_LABEL] !== API_SERVICE.name) return;
    if (isThere) slices.set(name, slice);
    else slices.delete(name);
    const found = apiServerUrls([...slices.values()]);
    // Without an address, the agent could not learn the next ones.
    if (found.length === 0) return;
    if (!isUnwritten && found.join() === urls.join()) return;
    urls = found;
    try {
      mkdirSync(stateDir, { recursive: true, mode: 0o700 });
      replaceFile(file, `${JSON.stringify({ servers: urls })}\n`);
      isUnwritten = false;
    } catch (error) {
      if (!isUnwritten)
        logger.warn({}, `failed to write the addresses of the API servers: ${messageOf(error)}`);
      isUnwritten = true;
    }
  };
  return {
    urls: () => urls,
    follow(informer) {
      informer.handle({
        onAdd: (slice) => change(slice, true),
        onUpdate: (slice) => change(slice, true),
        onDelete: (slice) => change(slice, false),
      });
    },
  };
}

/** Returns the addresses in EndpointSlices of the API servers' Service, sorted. */
function apiServerUrls(slices: readonly EndpointSlice[]): string[] {
  const urls = slices.flatMap(({ ports, endpoints }) => {
    const port = (ports ?? []).find(({ name, port }) => name === 'https' && port) ?? ports?.[0];
    if (!port?.port) return [];
    return (endpoints ?? []).flatMap(({ addresses, conditions }) =>
      conditions?.ready === false ? [] : addresses.flatMap((address) => urlOf(address, port.port ?? 0)),
    );
  });
  return [...new Set(urls)].sort();
}

function urlOf(address: string, port: number): string[] {
  return familyOf(address) === null ? [] : [`https://${hostPort({ ip: address, port })}`];
}

function readUrls(file: string, logger: Logger): readonly string[] {
  try {
    const text = readOptionalFile(file);
    if (text === null) return [];
    const { servers } = JSON.parse(text) as { readonly servers?: unknown };
    if (!Array.isArray(servers)) return [];
    return servers.filter((one) => typeof one === 'string' && URL.parse(one)?.protocol === 'https:');
  } catch (error) {
    logger.warn(
      { file },
      `the addresses of the API servers of an earlier run cannot be used: ${messageOf(error)}`,
    );
    return [];
  }
}
