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

/** The version of the output of commands: docs/versioning.md says what may change within it. */
export const OUTPUT_VERSION = 'cli.fairlead.dev/v1alpha1';

/** Marks an object with the version of the output. A list has no place for it, so that each of its objects has it. */
function withVersion(facts: unknown): unknown {
  if (Array.isArray(facts)) return facts.map(withVersion);
  return typeof facts === 'object' && facts !== null ? { apiVersion: OUTPUT_VERSION, ...facts } : facts;
}

/** Renders facts as JSON or YAML; null: the command prints its text. */
export function renderFacts(facts: unknown, { output }: { readonly output: Format }): string | null {
  switch (output) {
    case 'json':
      return `${JSON.stringify(withVersion(facts), null, 2)}\n`;
    case 'yaml':
      return stringify(withVersion(facts));
    case 'text':
      return null;
  }
}

/** Renders one of many facts, as a line of JSON or a document of YAML; null: the command prints its text. */
export function renderFact(fact: unknown, options: { readonly output: Format }): string | null {
  if (options.output === 'json') return `${JSON.stringify(withVersion(fact))}\n`;
  const text = renderFacts(fact, options);
  return text === null ? null : `---\n${text}`;
}
