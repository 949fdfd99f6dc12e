import { useEffect, useRef, useState } from 'preact/hooks';
import type { Advance, LessonEntry, OpenLesson, OpenStep } from '../../learn/course.ts';
import { missingLines } from '../../learn/expected-output.ts';
import type { Prediction } from '../../learn/lesson.ts';
import type { CommandResult } from '../../learn/run-command.ts';
import type { CommandRequest } from '../lesson-commands.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import { type View, viewLink } from './link-state.ts';

/** How often the page looks whether the step is done. */
const CHECK_MS = 3000;

type Problem = { readonly message: string; readonly hint: string | null };

const problemOf = (error: unknown): Problem => {
  const { message, hint } = error as ServerRefusal;
  return { message, hint };
};

/** The list of lessons, or one lesson. */
export function LessonsPage({
  lesson,
  show,
}: {
  readonly lesson: string | null;
  readonly show: (view: View) => void;
}) {
  return lesson === null ? <LessonList show={show} /> : <LessonPage key={lesson} name={lesson} show={show} />;
}

const progressText = ({ done, steps }: LessonEntry): string =>
  done === null ? 'not begun' : done === steps ? '✓ finished' : `${done} of ${steps} steps`;

function LessonList({ show }: { readonly show: (view: View) => void }) {
  const [lessons, setLessons] = useState<readonly LessonEntry[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isBusy, setBusy] = useState(false);
  const load = async () => {
    try {
      setLessons(await askServer<LessonEntry[]>('GET lessons'));
    } catch (error) {
      setProblem(problemOf(error));
    }
  };
  useEffect(() => {
    void load();
  }, []);
  const reset = async () => {
    setBusy(true);
    try {
      await askServer('DELETE lessons');
      setProblem(null);
    } catch (error) {
      setProblem(problemOf(error));
    }
    await load();
    setBusy(false);
  };
  return (
    <div class="lessons-page">
      <section class="card" aria-label="Lessons">
        <div class="bar">
          <h2>Lessons</h2>
          <div class="actions">
            <button
              type="button"
              disabled={isBusy || !lessons?.some(({ done }) => done !== null)}
              onClick={reset}
            >
              {isBusy ? 'Removing…' : 'Remove all that lessons created'}
            </button>
          </div>
        </div>
        <p class="quiet">
          Each runs on this cluster, in the namespace “learn”, and ends with a fault to find. The page runs
          its commands, or you type them in a terminal: it sees what they do.
        </p>
        <ProblemText problem={problem} />
        {lessons === null && !problem && <p class="quiet">Reading the lessons…</p>}
        <ol class="lesson-list">
          {(lessons ?? []).map((one) => (
            <li key={one.name}>
              <button type="button" onClick={() => show({ page: 'lessons', lesson: one.name })}>
                <strong>{one.title}</strong>
                <span class="quiet">{one.summary}</span>
                <span class={one.done === one.steps ? 'good' : 'quiet'}>{progressText(one)}</span>
              </button>
            </li>
          ))}
        </ol>
      </section>
    </div>
  );
}

function LessonPage({ name, show }: { readonly name: string; readonly show: (view: View) => void }) {
  const [open, setOpen] = useState<OpenLesson | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [finished, setFinished] = useState<readonly string[]>([]);
  const [asked, setAsked] = useState(0);
  const advance = async (how: Advance, isCurrent: () => boolean = () => true) => {
    try {
      const answer = await askServer<OpenLesson>('POST lesson', { lesson: name, advance: how });
      if (!isCurrent()) return;
      setOpen(answer);
      setProblem(null);
      const title = answer.finished;
      if (title !== null) setFinished((before) => [...before, title]);
    } catch (error) {
      if (isCurrent()) setProblem(problemOf(error));
    }
  };
  const step = open?.step ?? null;
  const waits = open === null || step?.missing != null;
  useEffect(() => {
    if (!waits) return;
    let isMounted = true;
    const timer = setTimeout(
      async () => {
        await advance('check', () => isMounted);
        if (isMounted) setAsked((count) => count + 1);
      },
      asked === 0 ? 0 : CHECK_MS,
    );
    return () => {
      isMounted = false;
      clearTimeout(timer);
    };
  }, [asked, waits]);
  return (
    <div class="lessons-page">
      <section class="card" aria-label={open?.title ?? 'Lesson'}>
        <p>
          <a href={viewLink({ page: 'lessons', lesson: null })}>All lessons</a>
        </p>
        <h2>{open?.title ?? 'The lesson begins: its pods are being started…'}</h2>
        <ProblemText problem={problem} />
        {finished.length > 0 && (
          <ul class="plain-list" aria-label="Steps that are done">
            {finished.map((title) => (
              <li key={title} class="good">
                ✓ {title}
              </li>
            ))}
          </ul>
        )}
        {open && open.seen !== null && <p class="quiet">You have seen: {open.seen}</p>}
        {open && step && (
          <StepText key={step.number} lesson={name} step={step} steps={open.steps} advance={advance} />
        )}
        {open && !step && (
          <>
            <p role="status" class="good">
              ✓ You have finished this lesson.
            </p>
            <div class="actions">
              <button type="button" class="main" onClick={() => show({ page: 'lessons', lesson: null })}>
                Choose another
              </button>
            </div>
          </>
        )}
      </section>
    </div>
  );
}

function StepText({
  lesson,
  step: { number, title, text, commands, missing, repair, predict, expected },
  steps,
  advance,
}: {
  readonly lesson: string;
  readonly step: OpenStep;
  readonly steps: number;
  readonly advance: (how: Advance) => Promise<void>;
}) {
  const [isBusy, setBusy] = useState(false);
  const [guess, setGuess] = useState<number | null>(null);
  const [hasRun, setRun] = useState(false);
  const [isRunning, setRunning] = useState(false);
  const isHidden = predict !== null && guess === null;
  const go = async (how: Advance) => {
    setBusy(true);
    await advance(how);
    setBusy(false);
  };
  return (
    <>
      <h3>
        Step {number} of {steps}: {title}
      </h3>
      {text.map((paragraph) => (
        <p key={paragraph} class="prose">
          {paragraph}
        </p>
      ))}
      {predict && <Question predict={predict} guess={guess} onGuess={setGuess} isAnswered={hasRun} />}
      {!isHidden && (
        <Commands
          label="Commands"
          commands={commands}
          place={{ lesson, step: number, list: 'commands' }}
          expected={expected}
          isBusy={isRunning}
          onRunning={setRunning}
          onRun={() => setRun(true)}
        />
      )}
      {repair && (
        <details>
          <summary>How to repair it</summary>
          <p>{repair.text}</p>
          <Commands
            label="Repair"
            commands={repair.commands}
            place={{ lesson, step: number, list: 'repair' }}
            expected={[]}
            isBusy={isRunning}
            onRunning={setRunning}
            onRun={() => {}}
          />
        </details>
      )}
      {missing !== null && (
        <p role="status" class="quiet">
          Still missing: {missing}. The page looks every {CHECK_MS / 1000} seconds.
        </p>
      )}
      <div class="actions">
        {missing === null ? (
          <button type="button" class="main" disabled={isBusy} onClick={() => go('next')}>
            I have seen it
          </button>
        ) : (
          <>
            <button type="button" class="main" disabled={isBusy} onClick={() => go('check')}>
              Check
            </button>
            <button type="button" disabled={isBusy} onClick={() => go('skip')}>
              Skip this step
            </button>
          </>
        )}
      </div>
    </>
  );
}

/** Asks what the learner expects, before the commands are shown; `isAnswered`: they have run. */
function Question({
  predict: { question, choices, answer, why },
  guess,
  onGuess,
  isAnswered,
}: {
  readonly predict: Prediction;
  readonly guess: number | null;
  readonly onGuess: (choice: number) => void;
  readonly isAnswered: boolean;
}) {
  return (
    <fieldset class="question">
      <legend>What do you expect? {question}</legend>
      {choices.map((choice, i) => (
        <label key={choice}>
          <input
            type="radio"
            name="guess"
            checked={guess === i}
            disabled={isAnswered}
            onChange={() => onGuess(i)}
          />
          <span>
            {choice}
            {isAnswered && i === answer && <span class="good"> ✓ right</span>}
            {isAnswered && i === guess && i !== answer && <span class="bad"> ✕ your guess</span>}
          </span>
        </label>
      ))}
      {guess === null && <p class="quiet">Choose an answer; then the commands are shown.</p>}
      {isAnswered && <p role="status">{why}</p>}
    </fieldset>
  );
}

/** One run of a command. */
type Run = { readonly command: string; readonly result: CommandResult | Problem | 'running' };

/** The commands of a step, with buttons to copy them and to run them on this machine. */
function Commands({
  label,
  commands,
  place,
  expected,
  isBusy,
  onRunning,
  onRun,
}: {
  readonly label: string;
  readonly commands: readonly string[];
  readonly place: Omit<CommandRequest, 'index'>;
  readonly expected: readonly string[];
  /** Commands of this step are running: one at a time can. */
  readonly isBusy: boolean;
  readonly onRunning: (isRunning: boolean) => void;
  /** Called when all have run. */
  readonly onRun: () => void;
}) {
  const [isCopied, setCopied] = useState(false);
  const [runs, setRuns] = useState<readonly Run[]>([]);
  const leave = useRef<AbortController | null>(null);
  useEffect(() => () => leave.current?.abort(), []);
  const text = commands.join('\n');
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  };
  const runAll = async () => {
    const left = new AbortController();
    leave.current = left;
    setRuns([]);
    onRunning(true);
    for (const [index, command] of commands.entries()) {
      setRuns((before) => [...before, { command, result: 'running' }]);
      const result = await askServer<CommandResult>(
        'POST lesson-command',
        { ...place, index },
        left.signal,
      ).catch(problemOf);
      if (left.signal.aborted) return;
      setRuns((before) => [...before.slice(0, -1), { command, result }]);
      if (!('code' in result)) {
        onRunning(false);
        return;
      }
    }
    onRunning(false);
    onRun();
  };
  const outputs = runs.flatMap(({ result }) =>
    typeof result === 'object' && 'code' in result ? result.output : [],
  );
  const missing = outputs.length === commands.length ? missingLines(outputs.join('\n'), expected) : null;
  return (
    <div class="typed">
      <div class="bar">
        <span class="quiet">{label}</span>
        <div class="actions">
          <button type="button" onClick={copy}>
            {isCopied ? 'Copied' : 'Copy'}
          </button>
          <button type="button" disabled={isBusy} onClick={runAll}>
            Run here
          </button>
        </div>
      </div>
      {/* Long lines scroll: the keyboard must reach them. */}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by the keyboard */}
      <pre tabIndex={0}>{text}</pre>
      {runs.length > 0 && (
        <div class="runs" role="log" aria-label="Output">
          {runs.map((run, i) => (
            <RunOutput key={i} run={run} />
          ))}
        </div>
      )}
      {expected.length > 0 && (
        <details class="expected">
          <summary>
            Expected output
            {missing !== null && missing.length === 0 && <span class="good"> ✓ as expected</span>}
            {missing !== null && missing.length > 0 && (
              <span class="bad"> ✕ {missing.length} expected lines are missing</span>
            )}
          </summary>
          <pre>{expected.map((line) => `${missing?.includes(line) ? '✕ ' : ''}${line}\n`).join('')}</pre>
          <p class="quiet">… stands for any text; other lines are between these.</p>
        </details>
      )}
    </div>
  );
}

function RunOutput({ run: { command, result } }: { readonly run: Run }) {
  return (
    <>
      <p>
        <code>$ {command}</code>
      </p>
      {result === 'running' && <p class="quiet">Running…</p>}
      {typeof result === 'object' && 'code' in result && (
        <>
          {result.isCut && <p class="quiet">… its end:</p>}
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by the keyboard */}
          <pre tabIndex={0}>{result.output}</pre>
          {result.code !== 0 && (
            <p class="bad">
              ✕ {result.code === null ? 'ended, because it took too long' : `exit code ${result.code}`}
            </p>
          )}
        </>
      )}
      {typeof result === 'object' && 'message' in result && <ProblemText problem={result} />}
    </>
  );
}

function ProblemText({ problem }: { readonly problem: Problem | null }) {
  if (problem === null) return null;
  return (
    <p role="alert" class="bad">
      {problem.message}
      {problem.hint !== null && `: ${problem.hint}`}
    </p>
  );
}
