import type { ApiAnswer } from './oracle.ts';
import { stable } from './stable.ts';

type Json = Record<string, unknown>;

/** One cause of a refusal. */
export type Cause = readonly [reason: string, field: string, message: string];

/** An answer without what varies between two runs of one server: the object of an accepted request, or the refusal. */
export type Outcome =
  | { readonly status: number; readonly object: Json }
  | {
      readonly status: number;
      readonly reason: string;
      readonly causes: readonly Cause[];
      /** "": the causes say it. */
      readonly message: string;
    };

/** Longest text that is kept of a message: some quote the whole object. */
const MAX_MESSAGE = 300;

/** Returns the outcome of an answer. `isApply`: the owners of the fields belong to it. */
export function outcomeOf(answer: ApiAnswer, isApply: boolean): Outcome {
  const { status } = answer;
  const body = answer.body as Json | null;
  if (status >= 200 && status < 300 && body !== null) return { status, object: stable(body, isApply) };
  const details = body?.['details'] as { causes?: Partial<Record<string, string>>[] } | undefined;
  const causes = (details?.causes ?? [])
    .map(({ reason = '', field = '', message = '' }): Cause => [reason, field, fixed(message)])
    .sort((a, b) => (a.join('\0') < b.join('\0') ? -1 : 1));
  return {
    status,
    reason: String(body?.['reason'] ?? ''),
    causes,
    message: causes.length > 0 ? '' : fixed(String(body?.['message'] ?? '')),
  };
}

/** Replaces what varies in a message, and shortens it. */
function fixed(message: string): string {
  const text = message
    .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<uid>')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, '<time>')
    .replace(/0x[0-9a-f]{8,}/g, '<address>')
    .replace(/resourceVersion: "\d+"/g, 'resourceVersion: <version>');
  return text.length > MAX_MESSAGE ? `${text.slice(0, MAX_MESSAGE)}…` : text;
}
