import { useEffect, useState } from 'preact/hooks';
import type { Advance, LessonEntry, OpenLesson, OpenStep } from '../../learn/course.ts';
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
          Each runs on this cluster, in the namespace “learn”, and ends with a fault to find. You type
          commands in a terminal; this page says which, and sees what they do.
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
        {open && step && <StepText key={step.number} step={step} steps={open.steps} advance={advance} />}
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
  step: { number, title, text, commands, missing, repair },
  steps,
  advance,
}: {
  readonly step: OpenStep;
  readonly steps: number;
  readonly advance: (how: Advance) => Promise<void>;
}) {
  const [isBusy, setBusy] = useState(false);
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
      <Commands label="Type in a terminal" commands={commands} />
      {repair && (
        <details>
          <summary>How to repair it</summary>
          <p>{repair.text}</p>
          <Commands label="Repair" commands={repair.commands} />
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

function Commands({ label, commands }: { readonly label: string; readonly commands: readonly string[] }) {
  const [isCopied, setCopied] = useState(false);
  const text = commands.join('\n');
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  };
  return (
    <div class="typed">
      <div class="bar">
        <span class="quiet">{label}</span>
        <button type="button" onClick={copy}>
          {isCopied ? 'Copied' : 'Copy'}
        </button>
      </div>
      {/* Long lines scroll: the keyboard must reach them. */}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by the keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </div>
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
