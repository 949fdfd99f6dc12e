import { stringify } from 'yaml';
import { choice, flag } from './options.ts';

/** The options of commands that print facts. */
export const FORMAT_OPTIONS = {
  output: choice('FORMAT', ['text', 'json', 'yaml'], 'text', 'the format', { short: 'o' }),
  json: flag('same as -o json'),
} as const;

/** Renders facts as JSON or YAML; null: the command prints its text. */
export function renderFacts(
  facts: unknown,
  options: { readonly output: 'text' | 'json' | 'yaml'; readonly json: boolean },
): string | null {
  if (options.output === 'yaml') return stringify(facts);
  return options.json || options.output === 'json' ? `${JSON.stringify(facts, null, 2)}\n` : null;
}
