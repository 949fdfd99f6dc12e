/**
 * Returns the value of a text that this program wrote as indented JSON, without the cost of a YAML parser; undefined for
 * any other text, also for JSON with duplicate keys, which a YAML parser refuses.
 */
export function readWrittenJson(text: string): unknown {
  if (!text.startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return writtenJson(value) === text ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the text of a file, as `readWrittenJson` reads it. */
export const writtenJson = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;
