/** Returns the flags of Node.js that do not bound memory: another process gets bounds of its own. */
export const withoutMemoryFlags = (flags: readonly string[]): string[] =>
  flags.filter((flag) => !/^--(max|min)-(semi-space|old-space)-size/.test(flag));
