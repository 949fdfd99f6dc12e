import type { ProxyVariables } from './proxy-environment.ts';

/** Address of an API server and the client's identity. PEM texts. */
export interface Credentials {
  /** "https://10.0.0.1:6443" */
  readonly server: string;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly token?: string;
  /**
   * A file that contains the token and changes: service accounts' tokens are renewed (KEP-1205). Read again every
   * minute.
   */
  readonly tokenFile?: string;
  readonly serverName?: string;
  /** The server's certificate is not verified. */
  readonly insecure?: true;
  /** Sent with each request: the user to act as, or a name and password. */
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** "http://proxy:3128", "socks5://proxy:1080": connections to the server pass this proxy. */
  readonly proxyUrl?: string;
  /** The proxies of the environment, which apply without `proxyUrl`. */
  readonly proxyVariables?: ProxyVariables;
}
