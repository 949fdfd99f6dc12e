/** One command of README's tour with the output that README shows. */
export interface TourStep {
  readonly command: string;
  /** The lines of the output; the sign of an omission is not one of them. */
  readonly output: readonly string[];
  /** Whether README leaves out the rest of the output, which it shows by a last line "…". */
  readonly isCut: boolean;
}

const OMISSION = '…';

/** Returns the steps of a document: the command that starts the cluster (`sh`, with the `text` after it), and all `console` blocks. */
export function readTour(markdown: string): TourStep[] {
  const blocks = [...markdown.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(([, language, text = '']) => ({
    language,
    text,
  }));
  return blocks.flatMap(({ language, text }, i): TourStep[] => {
    const next = blocks[i + 1];
    if (language === 'sh' && next?.language === 'text') return [step(text.trim(), next.text)];
    if (language !== 'console') return [];
    return text
      .split(/^\$ /m)
      .filter((one) => one !== '')
      .map((one) => {
        const end = one.indexOf('\n');
        return step(one.slice(0, end), one.slice(end + 1));
      });
  });
}

function step(command: string, output: string): TourStep {
  const lines = output.trimEnd() === '' ? [] : output.trimEnd().split('\n');
  const isCut = lines.at(-1) === OMISSION;
  return { command, output: isCut ? lines.slice(0, -1) : lines, isCut };
}

/** What differs between two runs, and the word that stands for it; the order matters. */
const VARIABLE: readonly (readonly [what: RegExp, word: string])[] = [
  [/https?:\/\/127\.0\.0\.1:\d+\/[\w-]{20,}\//g, 'PAGE'],
  [/https:\/\/127\.0\.0\.1:\d+/g, 'API-SERVER'],
  [/\bhello-[a-z0-9]{8,10}-[a-z0-9]{5}\b/g, 'POD'],
  [/\b\d\d:\d\d:\d\d\b/g, 'TIME'],
  // The ports of clients, not those of Services.
  [/(\d+\.\d+\.\d+\.\d+):[3-6]\d{4}\b/g, '$1:PORT'],
  [/\b10\.244\.\d+\.\d+/g, 'POD-IP'],
  [/\b10\.96\.(?!0\.1\b)\d+\.\d+/g, 'CLUSTER-IP'],
  [/\b172\.30\.0\.\d+/g, 'NODE-IP'],
  [/\bnode-[123]\b/g, 'NODE'],
  [/\b\d+(\.\d+)? (ms|µs|s)\b/g, 'DURATION'],
  [/\b\d+s\b/g, 'AGE'],
  [/\b\d+(\.\d+)? %/g, 'SHARE'],
  // The size of a mode's objects, which have addresses as texts.
  [/^(\w+(?: \([a-z ]+\))? +\d+ +)\d{4}\b/g, '$1BYTES'],
  // How many requests an endpoint got.
  [/^(POD\s+)\d+\b/g, '$1COUNT'],
  [/\s+/g, ' '],
];

/** Returns a line of output with names, addresses, durations and counts replaced by words, and spaces joined. */
export const shapeOf = (line: string): string =>
  VARIABLE.reduce((text, [what, word]) => text.replaceAll(what, word), line).trim();

/** Returns the shapes of lines, without empty ones. */
export const shapesOf = (lines: readonly string[]): string[] =>
  lines.map(shapeOf).filter((line) => line !== '');

/** Returns how an output differs from the one that README shows, or null; a cut output needs to begin with README's lines. */
export function shapeProblem({ output, isCut }: TourStep, actual: readonly string[]): string | null {
  const wanted = shapesOf(output);
  const lines = shapesOf(actual);
  const found = isCut ? lines.slice(0, wanted.length) : lines;
  const at = Math.max(wanted.length, found.length);
  for (let i = 0; i < at; i++)
    if (wanted[i] !== found[i])
      return `line ${i + 1}: README shows ${JSON.stringify(wanted[i])}, the run ${JSON.stringify(found[i])}`;
  return null;
}

/** Returns a document with the outputs of a run in place of those that it shows; omissions stay where they are. */
export function withOutputs(markdown: string, outputs: ReadonlyMap<string, readonly string[]>): string {
  const replaced = (command: string, shown: string) => {
    const actual = outputs.get(command);
    if (!actual) return shown;
    const before = step(command, shown);
    const lines = before.isCut ? [...actual.slice(0, before.output.length), OMISSION] : actual;
    return lines.map((line) => `${line}\n`).join('');
  };
  return markdown.replaceAll(
    /^```sh\n([^\n]*)\n```\n([\s\S]*?)```text\n([\s\S]*?)^```$|^```console\n([\s\S]*?)^```$/gm,
    (_, start?: string, prose?: string, shown?: string, text?: string) => {
      if (start !== undefined)
        return `\`\`\`sh\n${start}\n\`\`\`\n${prose}\`\`\`text\n${replaced(start, shown ?? '')}\`\`\``;
      const steps = (text ?? '').split(/^\$ /m).filter((one) => one !== '');
      const commands = steps.map((one) => {
        const end = one.indexOf('\n');
        const command = one.slice(0, end);
        return `$ ${command}\n${replaced(command, one.slice(end + 1))}`;
      });
      return `\`\`\`console\n${commands.join('')}\`\`\``;
    },
  );
}
