/** Returns why a regular expression is refused; null: it is accepted. */
export function regexProblem(regex: string): string | null {
  try {
    new RegExp(regex);
    return null;
  } catch {
    return 'is not a regular expression';
  }
}
