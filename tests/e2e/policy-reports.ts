/** A case of cyclonus; `problem`: null if it passed. */
export interface PolicyCase {
  readonly name: string;
  readonly problem: string | null;
}

/** Reads the cases of cyclonus' JUnit report. Its counts in the head are those of the library's defaults, and not used. */
export function cyclonusCases(junit: string): PolicyCase[] {
  return [...junit.matchAll(/<testcase\b([^>]*?)(?:\/>|>(.*?)<\/testcase>)/gs)].map(
    ([, attributes = '', body = '']) => ({
      name: text(/\bname="([^"]*)"/.exec(attributes)?.[1] ?? ''),
      problem: /<(failure|error)\b/.test(body)
        ? text(/\bmessage="([^"]+)"/.exec(body)?.[1] ?? 'failed')
        : null,
    }),
  );
}

/** Renders docs/conformance/cyclonus-MODE.md. */
export function cyclonusDocument(
  cases: readonly PolicyCase[],
  mode: string,
  words: readonly string[],
): string {
  const passed = cases.filter(({ problem }) => problem === null).length;
  return `${[
    `# cyclonus 0.5.6, ${mode} mode`,
    '',
    `Written by \`node tests/e2e/policy-suites.ts cyclonus --mode ${mode}\`, which runs \`${words.join(' ')}\`.`,
    '',
    `${passed} of ${cases.length} cases passed.`,
    '',
    '| case | result |',
    '| --- | --- |',
    ...cases.map(({ name, problem }) => `| ${name.replaceAll('|', '\\|')} | ${problem ?? 'passed'} |`),
  ].join('\n')}\n`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  lt: '<',
  gt: '>',
  amp: '&',
  '#34': '"',
  '#39': "'",
  quot: '"',
};
const text = (escaped: string) => escaped.replace(/&(#?\w+);/g, (all, name: string) => ENTITIES[name] ?? all);
