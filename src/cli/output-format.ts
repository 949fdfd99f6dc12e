import { stringify } from 'yaml';
import { type Choice, choice } from './options.ts';

const FORMATS = ['text', 'json', 'yaml'] as const;
type Format = (typeof FORMATS)[number];

const formatOption = (help: string): Choice<Format> =>
  choice('FORMAT', FORMATS, 'text', help, { short: 'o' });

/** The option of commands that print facts. */
export const FORMAT_OPTIONS = { output: formatOption('the format') } as const;

/** The option of commands that print facts as they happen. */
export const STREAM_OPTIONS = {
  output: formatOption('the format (json: an object per line; yaml: a document per object)'),
} as const;

/** Renders facts as JSON or YAML; null: the command prints its text. */
export function renderFacts(facts: unknown, { output }: { readonly output: Format }): string | null {
  switch (output) {
    case 'json':
      return `${JSON.stringify(facts, null, 2)}\n`;
    case 'yaml':
      return stringify(facts);
    case 'text':
      return null;
  }
}

/** Renders one of many facts, as a line of JSON or a document of YAML; null: the command prints its text. */
export function renderFact(fact: unknown, options: { readonly output: Format }): string | null {
  if (options.output === 'json') return `${JSON.stringify(fact)}\n`;
  const text = renderFacts(fact, options);
  return text === null ? null : `---\n${text}`;
}
