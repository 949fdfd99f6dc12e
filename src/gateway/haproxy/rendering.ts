import type { Backend, CertificateKey, RouteMap } from '../route-map.ts';

/** Settings of a node's proxy apart from the map. */
export interface ProxySettings {
  readonly threads: number;
  readonly maxConnections: number;
  /** Numeric ids of an unprivileged user; null: this process's own, which has no rights to change. */
  readonly user: { readonly uid: number; readonly gid: number } | null;
  /** An empty folder; null: none can be entered. */
  readonly chroot: string | null;
}

/** What a rendering needs to know of the node. */
export interface RenderInput {
  readonly routeMap: RouteMap;
  readonly settings: ProxySettings;
  /** Arguments of the bind lines of a gateway's port, such as "fd@3"; none: the port is left out. */
  readonly binds: (gateway: string, port: number) => readonly string[];
  /** Certificates with their keys, as PEM. Those that are absent are replaced by `fallbackCertificate`. */
  readonly certificates: ReadonlyMap<CertificateKey, string>;
  readonly fallbackCertificate: string;
  /** Authorities as PEM, by key. */
  readonly authorities: ReadonlyMap<string, string>;
}

/** A backend section of the configuration; its servers are the endpoints of `backend`. */
export interface Section {
  readonly name: string;
  readonly lines: readonly string[];
  /** null: it answers by itself. */
  readonly backend: Backend | null;
  /** The words after a server's address. */
  readonly serverWords: string;
}

/** A row that is left out, or answered with 500. */
export interface RefusedRow {
  readonly id: string;
  readonly reason: string;
}

/** A configuration without the servers of its sections. */
export interface Rendering {
  /** Everything before the sections. */
  readonly head: string;
  readonly sections: readonly Section[];
  /** Maps, certificates and lists by file name. */
  readonly files: ReadonlyMap<string, string>;
  /** In the order of their ids. */
  readonly refused: readonly RefusedRow[];
  /** Rows that each section implements, to find those of a section that HAProxy refuses. */
  readonly rowsOf: ReadonlyMap<string, readonly string[]>;
}

export interface Endpoint {
  readonly address: string;
  readonly port: number;
}

/** The main file of a configuration. */
export const MAIN_FILE = 'haproxy.cfg';

/** Returns the name of an endpoint's server in its section. */
export const serverName = ({ address, port }: Endpoint): string => `${address}-${port}`;

export const serverAddress = ({ address, port }: Endpoint): string =>
  address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;

/** Returns the whole configuration with the endpoints of each section. */
export function withServers(
  { head, sections, files }: Rendering,
  endpointsOf: (backend: Backend) => readonly Endpoint[],
): ReadonlyMap<string, string> {
  const texts = sections.map(({ name, lines, backend, serverWords }) => {
    const servers = (backend ? endpointsOf(backend) : []).map(
      (one) => `server ${serverName(one)} ${serverAddress(one)}${serverWords}`,
    );
    return [`backend ${name}`, ...[...lines, ...servers].map((line) => `  ${line}`)].join('\n');
  });
  return new Map([...files, [MAIN_FILE, `${[head, ...texts].join('\n\n')}\n`]]);
}
