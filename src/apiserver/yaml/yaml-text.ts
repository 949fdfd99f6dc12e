import { CORE_SCHEMA, load, YAMLException } from 'js-yaml';

/** A YAML text as an object. */
export interface YamlBody {
  readonly object: unknown;
  /** The first key that occurs twice in one mapping, in upstream's words; its last value counts. */
  readonly duplicateKey?: string;
}

/** Bodies nested deeper are refused: code that walks them recurses. */
export const MAX_DEPTH = 400;
/** Maximum number of values to which a short YAML text with aliases may expand. */
const MAX_VALUES = 1_000_000;

/** Of a key in a message. */
const MAX_KEY = 256;

/** Parses a YAML text in time linear to its length. Throws an error that says what is wrong in which line. */
export function parseYaml(source: string): YamlBody {
  const options = { schema: CORE_SCHEMA, maxDepth: MAX_DEPTH };
  try {
    const object = load(source, options);
    checkSize(object);
    return { object };
  } catch (error) {
    if (!(error instanceof YAMLException) || error.reason !== 'duplicated mapping key') throw error;
    const { line = 0, position = 0 } = error.mark ?? {};
    const key = source.slice(position, position + MAX_KEY).match(/^["']?(.*?)["']?\s*:/)?.[1] ?? '';
    // `json`: of several equal keys the last one wins, as in JSON.
    const object = load(source, { ...options, json: true });
    checkSize(object);
    return { object, duplicateKey: `line ${line + 1}: key ${JSON.stringify(key)} already set in map` };
  }
}

/** Counts values including those that aliases repeat; a cycle repeats without end. */
function checkSize(value: unknown): void {
  let count = 0;
  const walk = (node: unknown, depth: number): void => {
    if (++count > MAX_VALUES) throw new Error(`the document has more than ${MAX_VALUES} values`);
    if (depth > MAX_DEPTH) throw new Error(`nesting exceeds ${MAX_DEPTH} levels`);
    if (typeof node !== 'object' || node === null) return;
    for (const item of Object.values(node)) walk(item, depth + 1);
  };
  walk(value, 0);
}
