/** Stands for any text in an expected line: what differs from cluster to cluster. */
const ANY = '…';

/**
 * Returns the expected lines that an output does not have, in this order; other lines may be between them. Expected lines are
 * whole lines, without the blanks around them.
 */
export function missingLines(output: string, expected: readonly string[]): string[] {
  const lines = output.split('\n').map((line) => line.trim());
  let at = 0;
  return expected.filter((one) => {
    const found = lines.findIndex((line, i) => i >= at && isLike(line, one.trim()));
    if (found !== -1) at = found + 1;
    return found === -1;
  });
}

/** Compares without a regular expression, whose time could grow with the lesson's text: each part is looked for once. */
function isLike(line: string, wanted: string): boolean {
  const [first = '', ...rest] = wanted.split(ANY);
  if (rest.length === 0) return line === wanted;
  const last = rest.pop() ?? '';
  if (!line.startsWith(first)) return false;
  let at = first.length;
  for (const part of rest) {
    const found = line.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return line.endsWith(last) && line.length - last.length >= at;
}
