import type { Clock } from '../lib/clock.ts';
import type { Output } from './command.ts';

type Verdict = 'good' | 'bad' | 'unknown';

/** Parameters of Select Graphic Rendition (ECMA-48): green, red, yellow. */
const COLOURS: Readonly<Record<Verdict, number>> = { good: 32, bad: 31, unknown: 33 };
const PROGRESS_AFTER_MS = 500;
const PROGRESS_EVERY_MS = 250;
/** Returns to the start of the line and erases it. */
const ERASE = '\r\u001b[K';

/** Colours text by a verdict; only on a terminal, and unless NO_COLOR is set (no-color.org). */
export function paint(
  output: Pick<Output, 'columns'>,
  verdict: Verdict,
  text: string,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): string {
  if (output.columns === null || environment['NO_COLOR']) return text;
  return `\u001b[${COLOURS[verdict]}m${text}\u001b[0m`;
}

/** A line on standard error that shows the progress of work. */
export interface ProgressLine {
  /** Erases the line until its next update, before other text is printed. */
  hide(): void;
  end(): void;
}

/** Shows the progress of work that takes longer than half a second; only on a terminal. */
export function showProgress(
  output: Pick<Output, 'err' | 'interactive'>,
  clock: Clock,
  text: () => string,
): ProgressLine {
  if (!output.interactive) return { hide() {}, end() {} };
  let isShown = false;
  const hide = () => {
    if (isShown) output.err(ERASE);
    isShown = false;
  };
  const show = () => {
    output.err(`${ERASE}${text()}`);
    isShown = true;
    cancel = clock.after(PROGRESS_EVERY_MS, show);
  };
  let cancel = clock.after(PROGRESS_AFTER_MS, show);
  return {
    hide,
    end() {
      cancel();
      hide();
    },
  };
}
