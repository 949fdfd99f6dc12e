import { isIP } from 'node:net';
import { isProxyable, isProxyableOrLoopback, type MayDial } from '../../kube/dial-check.ts';
import { canonicalAddress, cidrContains, LOOPBACK } from '../../lib/address.ts';
import { FairleadError } from '../../lib/errors.ts';
import { trimEnd } from '../../lib/trim-end.ts';
import type { ImageReference } from './reference.ts';

/** A server that is asked for images of a registry before the registry, as a mirror of containerd. */
export interface RegistryMirror {
  /** "docker.io" */
  readonly registry: string;
  /** "http://localhost:5000"; a path is put before the repository. */
  readonly url: string;
}

/** Where a repository is served. */
export interface RegistryEndpoint {
  /** Of the repository: "https://registry-1.docker.io/v2/library/nginx". */
  readonly url: URL;
  readonly isMirror: boolean;
  /** Whether the user, or the configuration, named the host, not only who created a pod. */
  readonly isNamed: boolean;
}

export interface EndpointOptions {
  /** Registries ("HOST:PORT") that are contacted over plain HTTP; registries on loopback always are. */
  readonly plainHttp?: readonly string[];
  readonly mirrors?: readonly RegistryMirror[];
  /** Whether the user of this machine named the image: its registry may be on loopback by any name. */
  readonly isNamed?: boolean;
}

/** Returns where an image is looked for, in this order: the mirrors of its registry, then the registry. */
export function endpointsOf(
  { registry, repository }: ImageReference,
  { plainHttp = [], mirrors = [], isNamed = false }: EndpointOptions,
): RegistryEndpoint[] {
  const host = registry === 'docker.io' ? 'registry-1.docker.io' : registry;
  const isListed = plainHttp.includes(registry);
  const isPlain = isListed || isLoopbackName(URL.parse(`http://${host}`));
  const own = URL.parse(`${isPlain ? 'http' : 'https'}://${host}/v2/${repository}`);
  return [
    ...mirrors
      .filter((mirror) => mirror.registry === registry)
      .map(({ url }) => ({ url: mirrorUrl(url, repository, registry), isMirror: true, isNamed: true })),
    ...(own ? [{ url: own, isMirror: false, isNamed: isNamed || isListed }] : []),
  ];
}

function mirrorUrl(text: string, repository: string, registry: string): URL {
  const url = new URL(text);
  url.pathname = `/v2${trimEnd(url.pathname, '/')}/${repository}`;
  // As containerd: a mirror of several registries learns which one is meant.
  url.searchParams.set('ns', registry);
  return url;
}

/** Registries on loopback are contacted without TLS, as by Docker and containerd. */
function isLoopbackName(url: URL | null): boolean {
  // The URL's form: "127.1" is 127.0.0.1, and "127.example" is a name.
  const host = url?.hostname.replace(/^\[|\]$/g, '') ?? '';
  if (isIP(host) === 0) return host === 'localhost';
  const address = canonicalAddress(host) ?? host;
  return cidrContains(LOOPBACK[address.includes(':') ? 'ipv6' : 'ipv4'], address);
}

/**
 * Returns which addresses may be dialed for a URL that a registry, or its name, has led to: loopback only if the registry's
 * own name says that it is there, or the user named it; link-local, multicast and metadata addresses never. A user who may create
 * pods names registries, and these name others by redirects and by the addresses of their tokens.
 */
export function guardOf(endpoint: RegistryEndpoint, url: URL): MayDial {
  const isLocal = isLoopbackName(endpoint.url)
    ? isLoopbackName(url)
    : endpoint.isNamed && url.host === endpoint.url.host;
  return isLocal ? isProxyableOrLoopback : isProxyable;
}

/** Returns an address that a registry names, of a redirect or of its tokens; null: no client may follow it. */
export function targetOf(endpoint: RegistryEndpoint, text: string, base?: URL): URL | null {
  const url = URL.parse(text, base?.href);
  // TLS is not given up.
  const allowed = endpoint.url.protocol === 'http:' ? ['http:', 'https:'] : ['https:'];
  return url !== null && allowed.includes(url.protocol) ? url : null;
}

/** Reads mirrors; "none" alone: there are none. Throws FairleadError "usage". */
export const parseMirrors = (texts: readonly string[]): RegistryMirror[] =>
  texts.length === 1 && texts[0] === 'none' ? [] : texts.map(parseMirror);

/** Reads "HOST=URL". Throws FairleadError "usage". */
export function parseMirror(text: string): RegistryMirror {
  const at = text.indexOf('=');
  const registry = text.slice(0, at).replace(/^index\.docker\.io$/, 'docker.io');
  const url = URL.parse(text.slice(at + 1));
  const refuse = (why: string) =>
    new FairleadError(`--registry-mirror ${JSON.stringify(text)}: ${why}`, {
      op: 'read --registry-mirror',
      code: 'usage',
      hint: '--registry-mirror docker.io=http://localhost:5000',
    });
  if (at <= 0 || !/^[a-zA-Z0-9.[\]:-]+$/.test(registry)) throw refuse('it must be HOST=URL');
  if (url === null || !['http:', 'https:'].includes(url.protocol))
    throw refuse('the address must begin with http:// or https://');
  if (url.username !== '' || url.search !== '' || url.hash !== '')
    throw refuse('the address may have a host, a port and a path only');
  return { registry, url: trimEnd(url.href, '/') };
}
