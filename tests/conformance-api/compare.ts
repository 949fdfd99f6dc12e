import { type ApiAnswer, CONNECTION_CLOSED } from './oracle.ts';
import { type Outcome, outcomeOf } from './outcome.ts';

type Json = Record<string, unknown>;

/**
 * Returns the difference between two servers' answers to one request; null if they agree. `upstream` is the
 * answer of kube-apiserver.
 */
export const difference = (upstream: ApiAnswer, ours: ApiAnswer): string | null =>
  outcomeDifference(outcomeOf(upstream, false), outcomeOf(ours, false));

/** Works like `difference`, for outcomes. */
export function outcomeDifference(upstream: Outcome, ours: Outcome): string | null {
  // If kube-apiserver panics, there is no answer to compare with.
  if (upstream.status === CONNECTION_CLOSED) return null;
  if (upstream.status !== ours.status || 'object' in upstream !== 'object' in ours) {
    return `status ${upstream.status} (${brief(upstream)}), ours ${ours.status} (${brief(ours)})`;
  }
  if ('object' in upstream) {
    return 'object' in ours ? firstDifference(upstream.object, ours.object, '') : null;
  }
  if ('object' in ours) return null;
  if (upstream.reason !== ours.reason) return `reason ${upstream.reason}, ours ${ours.reason}`;
  const [wanted, got] = [places(upstream), places(ours)];
  const missing = wanted.filter((cause) => !got.includes(cause));
  const more = got.filter((cause) => !wanted.includes(cause));
  if (missing.length > 0 || more.length > 0) {
    return `causes missing: ${missing.join(', ') || 'none'}; too many: ${more.join(', ') || 'none'}`;
  }
  // Only its message says which part of an apply was refused.
  return upstream.message.startsWith('failed to create typed patch object') &&
    upstream.message !== ours.message
    ? `message ${upstream.message}, ours ${ours.message}`
    : null;
}

/** Returns true if the messages of two rejections are equal too, except for random names. */
export function sameMessage(upstream: ApiAnswer, ours: ApiAnswer): boolean {
  return (upstream.body as Json | null)?.['message'] === (ours.body as Json | null)?.['message'];
}

function brief(outcome: Outcome): string {
  if ('object' in outcome) return 'accepted';
  const { causes, message } = outcome;
  return causes.length > 0 ? causes.map(([, field, text]) => `${field}: ${text}`).join('; ') : message;
}

type Refusal = Exclude<Outcome, { readonly object: unknown }>;

function places({ causes }: Refusal): string[] {
  return [...new Set(causes.map(([reason, field]) => `${reason} ${field}`))].sort();
}

function firstDifference(expected: unknown, actual: unknown, path: string): string | null {
  if (JSON.stringify(expected) === JSON.stringify(actual)) return null;
  const bothLists = Array.isArray(expected) && Array.isArray(actual) && expected.length === actual.length;
  if (bothLists || (isObject(expected) && isObject(actual))) {
    const keys = new Set([...Object.keys(expected as object), ...Object.keys(actual as object)]);
    for (const key of keys) {
      const found = firstDifference((expected as Json)[key], (actual as Json)[key], `${path}.${key}`);
      if (found) return found;
    }
    return null;
  }
  return `${path.slice(1)} is ${text(expected)}, ours ${text(actual)}`;
}

const text = (value: unknown) => (value === undefined ? 'absent' : JSON.stringify(value).slice(0, 160));

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
