import { type Cidr, cidrContains, parseCidr } from '../lib/address.ts';

/** On a pod: addresses and networks that it uses in addition to its own, separated by commas. */
export const EXTRA_SOURCES = 'fairlead.dev/additional-sources';
/** On a namespace, by an administrator: the networks that its pods may request so. */
export const ALLOWED_SOURCES = 'fairlead.dev/allowed-additional-sources';

/** The requested addresses that a pod may use. */
export interface ExtraSources {
  readonly allowed: readonly Cidr[];
  /** The requests that are refused, as they were written, each with the reason. */
  readonly refused: readonly { readonly text: string; readonly reason: string }[];
}

/** More requests of one pod are refused: each is an element of a set of the kernel. */
const MAX_REQUESTS = 64;

/** Decides which additional sources a pod gets, by its annotation and that of its namespace. */
export function extraSources(requested: string | undefined, permitted: string | undefined): ExtraSources {
  const networks = split(permitted).flatMap((text) => networkOf(text) ?? []);
  const allowed: Cidr[] = [];
  const refused: { text: string; reason: string }[] = [];
  for (const [i, text] of split(requested).entries()) {
    const cidr = networkOf(text);
    if (i >= MAX_REQUESTS) refused.push({ text, reason: `at most ${MAX_REQUESTS} are read` });
    else if (!cidr) refused.push({ text, reason: 'it is not an address or a network' });
    else if (!networks.some((one) => covers(one, cidr)))
      refused.push({ text, reason: `the namespace's annotation ${ALLOWED_SOURCES} does not contain it` });
    else allowed.push(cidr);
  }
  return { allowed, refused };
}

const split = (text = ''): string[] =>
  text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');

/** Reads an address or a network of a request; null: neither. */
export const networkOf = (text: string): Cidr | null =>
  parseCidr(text.includes('/') ? text : `${text}/${text.includes(':') ? 128 : 32}`);

const covers = (outer: Cidr, inner: Cidr): boolean =>
  outer.family === inner.family &&
  outer.prefix <= inner.prefix &&
  cidrContains(outer, inner.text.replace(/\/.*$/, ''));
