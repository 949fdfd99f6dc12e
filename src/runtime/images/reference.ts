import { KubeletError } from '../kubelet-error.ts';

/** The full name of an image: "nginx" is docker.io/library/nginx:latest. */
export interface ImageReference {
  /** "docker.io", "127.0.0.1:5000" */
  readonly registry: string;
  readonly repository: string;
  /** Empty if the name has only a digest. */
  readonly tag: string;
  /** "sha256:…", or empty. */
  readonly digest: string;
}

const COMPONENT = '[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*';
const REPOSITORY = new RegExp(`^${COMPONENT}(?:/${COMPONENT})*$`);
const HOST = /^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]+)?$/;
const TAG = /^[\w][\w.-]{0,127}$/;
const DIGEST = /^sha256:[a-f0-9]{64}$/;

/** Parses an image's name by the rules of the distribution project. Throws KubeletError "InvalidImageName". */
export function parseReference(text: string): ImageReference {
  const bad = (why: string) =>
    new KubeletError('InvalidImageName', `couldn't parse image name ${JSON.stringify(text)}: ${why}`, {
      op: 'read image name',
      hint: 'REGISTRY/REPOSITORY:TAG, such as registry.k8s.io/pause:3.10',
    });
  const [named = '', digest = '', ...more] = text.split('@');
  if (more.length > 0) throw bad('more than one "@"');
  if (digest !== '' && !DIGEST.test(digest)) throw bad('the digest is not sha256:<64 hex digits>');
  const slash = named.indexOf('/');
  const first = named.slice(0, Math.max(slash, 0));
  const hasHost = slash > 0 && (/[.:]/.test(first) || first === 'localhost');
  const registry = hasHost ? (first === 'index.docker.io' ? 'docker.io' : first) : 'docker.io';
  const rest = hasHost ? named.slice(slash + 1) : named;
  const colon = rest.lastIndexOf(':');
  const path = colon < 0 ? rest : rest.slice(0, colon);
  const tag = colon < 0 ? (digest === '' ? 'latest' : '') : rest.slice(colon + 1);
  const repository = registry === 'docker.io' && !path.includes('/') ? `library/${path}` : path;
  if (!HOST.test(registry)) throw bad('the registry must be HOST or HOST:PORT');
  if (!REPOSITORY.test(repository))
    throw bad('the repository must be lower-case letters and digits, separated by . _ - /');
  if (tag === '' ? digest === '' : !TAG.test(tag))
    throw bad('the tag must be letters, digits, _ . -, up to 128 characters');
  return { registry, repository, tag, digest };
}

/** Returns the canonical text of an image's name. */
export function formatReference({ registry, repository, tag, digest }: ImageReference): string {
  return `${registry}/${repository}${tag ? `:${tag}` : ''}${digest ? `@${digest}` : ''}`;
}

/** Returns the default of imagePullPolicy: Always for the tag "latest". */
export function defaultPullPolicy({ tag, digest }: ImageReference): 'Always' | 'IfNotPresent' {
  return tag === 'latest' && digest === '' ? 'Always' : 'IfNotPresent';
}
