import { canonicalAddress, cidrContains } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { EXTRA_SOURCES, extraSources, networkOf } from '../network/extra-sources.ts';
import { nameOf } from './explain-places.ts';
import type { Origin } from './explain-view.ts';
import type { Cause } from './explanation.ts';

/** FROM with the source address that its packet has: "pod/web@10.244.1.9". */
export interface SourcedOrigin {
  readonly from: string;
  /** Null: the origin's own address. */
  readonly source: string | null;
}

/** Splits FROM; a text without an address behind "@" has no source. */
export function splitSource(text: string): SourcedOrigin {
  const match = /^(.*)@([^@]+)$/.exec(text.trim());
  const source = match && canonicalAddress(match[2]?.replace(/^\[(.*)\]$/, '$1') ?? '');
  return match && source !== null ? { from: match[1] ?? '', source } : { from: text, source: null };
}

/**
 * The pods of a node's network send only from their own addresses and those that their namespace permits: the source guard
 * drops other packets. `permitted`: returns the annotation of a namespace.
 */
export function forgedSource(
  origin: Origin,
  source: string,
  permitted: (namespace: string) => string | undefined,
): Cause | null {
  if (origin.kind !== 'pod' || !origin.pod) {
    throw new FairleadError(
      `${origin.label} has no source address to choose: only pods with a network of their own have`,
      {
        op: 'explain',
        code: 'bad-argument',
        hint: 'use pod/NAME@ADDRESS, outside@ADDRESS, or the address alone',
      },
    );
  }
  if (origin.addresses.includes(source)) return null;
  const { metadata } = origin.pod;
  const requested = metadata?.annotations?.[EXTRA_SOURCES];
  const { allowed, refused } = extraSources(requested, permitted(metadata?.namespace ?? 'default'));
  if (allowed.some((cidr) => cidrContains(cidr, source))) return null;
  const refusal = refused.find(({ text }) => {
    const cidr = networkOf(text);
    return cidr !== null && cidrContains(cidr, source);
  });
  const why = refusal ? `: its request of ${refusal.text} is refused, because ${refusal.reason}` : '';
  return {
    text: `${source} is not an address of pod ${nameOf(origin.pod)}${why}`,
    object: origin.label,
    field: null,
    fix: `send from an address of the pod, or permit the address by annotations of the pod and its namespace (${EXTRA_SOURCES})`,
  };
}
