/** The final state of a spec. Specs excluded by focus and skip are not reported at all. */
export type SpecState = 'passed' | 'failed' | 'skipped';

export interface SpecResult {
  readonly name: string;
  readonly state: SpecState;
  /** The reason why it failed or skipped itself: the first line of the spec's message, or "". */
  readonly reason: string;
}

/** The parts of ginkgo's JSON report (types.Report) that are read here. */
interface Report {
  readonly SpecReports?: readonly SpecReport[] | null;
}

interface SpecReport {
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly ContainerHierarchyTexts?: readonly string[] | null;
  readonly State: string;
  readonly Failure?: { readonly Message?: string };
}

const MAX_REASON = 240;

/** Reads a ginkgo JSON report (`--json-report`), one suite or several. Sorted by name. */
export function readReport(text: string): SpecResult[] {
  const results: SpecResult[] = [];
  for (const suite of JSON.parse(text) as Report[]) {
    for (const spec of suite.SpecReports ?? []) {
      if (spec.LeafNodeType !== 'It') continue;
      const message = spec.Failure?.Message ?? '';
      const state = stateOf(spec.State, message);
      if (!state) continue;
      results.push({ name: nameOf(spec), state, reason: state === 'passed' ? '' : firstLine(message) });
    }
  }
  return results.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

/** Lists the names of all specs of the suites, including those that did not run. */
export function specNames(text: string): string[] {
  return (JSON.parse(text) as Report[]).flatMap((suite) =>
    (suite.SpecReports ?? []).filter(({ LeafNodeType }) => LeafNodeType === 'It').map(nameOf),
  );
}

const nameOf = (spec: SpecReport) => [...(spec.ContainerHierarchyTexts ?? []), spec.LeafNodeText].join(' ');

/**
 * Returns the final state of a spec, or null if it did not run to its end. A spec that skipped itself
 * reports a reason; a spec that was filtered out has no message; a spec that was running when the time of
 * the whole run was over proves nothing.
 */
function stateOf(state: string, message: string): SpecState | null {
  switch (state) {
    case 'passed':
      return 'passed';
    case 'skipped':
    case 'pending':
      return message === '' ? null : 'skipped';
    case 'interrupted':
      return null;
    case 'timedout':
      return message.startsWith('A suite timeout occurred') ? null : 'failed';
    default:
      return 'failed';
  }
}

/**
 * Returns the first line as text. Specs print answers of servers, including Protobuf: characters that are
 * not text become spaces.
 */
function firstLine(message: string): string {
  const line = message.replace(/[\s\p{Cc}\uFFFD]+/gu, ' ').trim();
  return line.length > MAX_REASON ? `${line.slice(0, MAX_REASON - 1)}…` : line;
}
