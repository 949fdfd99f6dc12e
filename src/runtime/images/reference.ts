import { KubeletError } from '../kubelet-error.ts';

/** An image's name, whole: "nginx" is docker.io/library/nginx:latest. */
export interface ImageReference {
  /** "docker.io", "127.0.0.1:5000" */
  readonly registry: string;
  readonly repository: string;
  /** Empty when there is a digest only. */
  readonly tag: string;
  /** "sha256:…", or empty. */
  readonly digest: string;
}

const COMPONENT = '[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*';
const REPOSITORY = new RegExp(`^${COMPONENT}(?:/${COMPONENT})*$`);
const HOST = /^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]+)?$/;
const TAG = /^[\w][\w.-]{0,127}$/;
const DIGEST = /^sha256:[a-f0-9]{64}$/;

/** Reads an image's name by the rules of the distribution project. Throws KubeletError "InvalidImageName". */
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
  if (!HOST.test(registry)) throw bad('the registry is HOST or HOST:PORT');
  if (!REPOSITORY.test(repository))
    throw bad('a repository is lower case letters, digits, and . _ - / between');
  if (tag === '' ? digest === '' : !TAG.test(tag)) throw bad('a tag is letters, digits, _ . -, at most 128');
  return { registry, repository, tag, digest };
}

/** The one text for an image, however its name was written. */
export function formatReference({ registry, repository, tag, digest }: ImageReference): string {
  return `${registry}/${repository}${tag ? `:${tag}` : ''}${digest ? `@${digest}` : ''}`;
}

/** What imagePullPolicy means when it is not given: Always for the tag "latest". */
export function defaultPullPolicy({ tag, digest }: ImageReference): 'Always' | 'IfNotPresent' {
  return tag === 'latest' && digest === '' ? 'Always' : 'IfNotPresent';
}
