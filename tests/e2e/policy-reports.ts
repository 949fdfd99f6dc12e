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

/** Renders one run as a section of docs/conformance/cyclonus-MODE.md. `tags`: which cases it included and excluded. */
export function cyclonusSection(
  cases: readonly PolicyCase[],
  tags: { readonly include: string; readonly exclude: string },
): string {
  const passed = cases.filter(({ problem }) => problem === null).length;
  return `${[
    `## \`--only ${tags.include || 'all'} --exclude ${tags.exclude}\``,
    '',
    `${passed} of ${cases.length} cases passed.`,
    '',
    '| case | result |',
    '| --- | --- |',
    ...cases.map(({ name, problem }) => `| ${name.replaceAll('|', '\\|')} | ${problem ?? 'passed'} |`),
  ].join('\n')}\n`;
}

/** Renders docs/conformance/cyclonus-MODE.md: its former content with one section replaced, or added. */
export function cyclonusDocument(former: string, section: string, mode: string): string {
  const heading = (text: string) => text.slice(0, text.indexOf('\n'));
  const sections = former.split(/^(?=## )/m).slice(1);
  const at = sections.findIndex((one) => heading(one) === heading(section));
  if (at < 0) sections.push(section);
  else sections[at] = `${section}${at < sections.length - 1 ? '\n' : ''}`;
  const counts = sections.map((one) => /^(\d+) of (\d+) cases passed\.$/m.exec(one)?.slice(1).map(Number));
  const sum = (index: number) => counts.reduce((all, count) => all + (count?.[index] ?? 0), 0);
  return `${[
    `# cyclonus 0.5.6, ${mode} mode`,
    '',
    `${sum(0)} of ${sum(1)} cases passed. Each section is a run;`,
    `\`node tests/e2e/policy-suites.ts cyclonus --mode ${mode}\` with the options of its heading repeats it.`,
    '',
    ...sections.map((one) => `${one.trimEnd()}\n`),
  ].join('\n')}`;
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
