import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { ObjectQuestion } from '../../cluster/object-text.ts';
import type { TracedFlow } from '../../cluster/trace-flow.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import type { ClusterData } from './cluster-store.ts';
import { type View, viewLink } from './link-state.ts';
import { HopDetails, PathPicture, RawText } from './path-drawing.tsx';
import { drawPath, isKernelObject } from './path-picture.ts';

type PathView = Extract<View, { page: 'path' }>;

const STEP_MS = 450;

/** The path of one real packet between two ends, as a picture. */
export function PathPage({
  data,
  view,
  show,
  moves,
}: {
  data: ClusterData;
  view: PathView;
  show: (view: View) => void;
  moves: boolean;
}) {
  const [from, setFrom] = useState(view.from);
  const [to, setTo] = useState(view.to);
  const [family, setFamily] = useState(view.family);
  const [result, setResult] = useState<TracedFlow | ServerRefusal | 'waiting' | null>(null);
  const asked = useRef(0);
  const trace = async ({ from: start, to: target, family: wanted }: PathView) => {
    const number = ++asked.current;
    setResult('waiting');
    const question = { from: start, to: target, family: wanted === 'any' ? null : wanted };
    const answer = await askServer<TracedFlow>('POST trace', question).catch((error: ServerRefusal) => error);
    if (asked.current === number) setResult(answer);
  };
  useEffect(() => {
    setFrom(view.from);
    setTo(view.to);
    setFamily(view.family);
    if (view.from !== '' && view.to !== '') void trace(view);
    else setResult(null);
  }, [view.from, view.to, view.family]);
  const submit = (event: Event) => {
    event.preventDefault();
    const next: PathView = { page: 'path', from: from.trim(), to: to.trim(), family };
    // The same ends again: another packet.
    if (viewLink(next) === viewLink(view)) void trace(next);
    else show(next);
  };
  const starts = useMemo(
    () => [...data.pods.keys(), 'outside', ...[...data.nodes.keys()].map((n) => `node/${n}`)],
    [data.pods, data.nodes],
  );
  const targets = useMemo(
    () => [
      ...[...data.services.keys()].map((name) => `svc/${name}`),
      ...[...data.pods.keys()].map((name) => `pod/${name}`),
    ],
    [data.services, data.pods],
  );
  return (
    <div class="path-page">
      <form class="card ends-form" onSubmit={submit}>
        <label>
          From
          <input
            list="starts"
            value={from}
            required
            placeholder="default/client, outside, node/node-1"
            onInput={({ currentTarget }) => setFrom(currentTarget.value)}
          />
        </label>
        <label>
          To
          <input
            list="targets"
            value={to}
            required
            placeholder="svc/default/hello, pod/…, http://hello/, an address"
            onInput={({ currentTarget }) => setTo(currentTarget.value)}
          />
        </label>
        <label>
          Family
          <select
            value={family}
            onChange={({ currentTarget }) => setFamily(currentTarget.value as PathView['family'])}
          >
            <option value="any">any</option>
            <option value="ipv4">IPv4</option>
            <option value="ipv6">IPv6</option>
          </select>
        </label>
        <button type="submit" class="main">
          Send a packet
        </button>
        <Options id="starts" values={starts} />
        <Options id="targets" values={targets} />
      </form>
      <div aria-live="polite">
        {result === null && (
          <p class="card quiet">
            Choose two ends. One real packet is sent between them, and every device that it passes is shown.
            Nothing else is changed, and nothing remains.
          </p>
        )}
        {result === 'waiting' && <p class="card quiet">Sending a packet, and waiting for its answer…</p>}
        {result instanceof Error && (
          <div class="card">
            <p class="bad">✕ {result.message}</p>
            {result.hint !== null && <p>{result.hint}</p>}
          </div>
        )}
      </div>
      {result !== null && typeof result === 'object' && !(result instanceof Error) && (
        <TracedPath flow={result} moves={moves} command={data.cluster?.command ?? 'fairlead'} />
      )}
    </div>
  );
}

/** More suggestions would make the list slow. */
const MAX_OPTIONS = 400;

function Options({ id, values }: { id: string; values: readonly string[] }) {
  return (
    <datalist id={id}>
      {values.slice(0, MAX_OPTIONS).map((value) => (
        <option key={value} value={value} />
      ))}
    </datalist>
  );
}

function TracedPath({ flow, moves, command }: { flow: TracedFlow; moves: boolean; command: string }) {
  const picture = useMemo(() => drawPath(flow), [flow]);
  const last = picture.steps.length - 1;
  const [step, setStep] = useState(0);
  const [isPlaying, setPlaying] = useState(moves);
  useEffect(() => {
    setStep(0);
    setPlaying(moves);
  }, [flow]);
  useEffect(() => {
    if (!isPlaying) return;
    if (step >= last) {
      setPlaying(false);
      return;
    }
    const timer = setTimeout(() => setStep(step + 1), STEP_MS);
    return () => clearTimeout(timer);
  }, [isPlaying, step, last]);
  const go = (next: number) => {
    setPlaying(false);
    setStep(Math.max(0, Math.min(last, next)));
  };
  const current = picture.steps[step];
  return (
    <>
      <Verdict flow={flow} />
      {current && (
        <section class="card" aria-label="Path of the packet">
          <div class="bar">
            <h2>
              {current.packet}, step {step + 1} of {last + 1}
            </h2>
            <div class="actions">
              <button type="button" onClick={() => go(step - 1)} disabled={step === 0}>
                Back
              </button>
              <button
                type="button"
                onClick={() => {
                  if (step >= last) setStep(0);
                  setPlaying(!isPlaying);
                }}
              >
                {isPlaying ? 'Pause' : 'Play'}
              </button>
              <button type="button" onClick={() => go(step + 1)} disabled={step === last}>
                Next
              </button>
            </div>
          </div>
          <PathPicture picture={picture} step={step} onStep={go} />
          <HopDetails step={current} command={command} entryNode={flow.explanation.packet?.node ?? null} />
        </section>
      )}
      <Lookups flow={flow} />
      <ExplainSteps flow={flow} />
    </>
  );
}

function Verdict({ flow: { explanation, trace, agreement } }: { flow: TracedFlow }) {
  const isAnswered = trace?.answer.kind === 'answered';
  const said = explanation.verdict.toUpperCase();
  return (
    <section class="card" aria-label="Outcome">
      <h2 class={isAnswered ? 'good' : 'bad'}>
        {isAnswered ? '✓' : '✕'} {outcomeText(trace)}
      </h2>
      <p class="quiet">
        {explanation.from} → {explanation.to}; explain says {said}
        {agreement === null
          ? ''
          : agreement.isVerdictRight === null
            ? ''
            : agreement.isVerdictRight
              ? ', which is right'
              : ', which is wrong'}
      </p>
      {!isAnswered && (
        <ul class="plain-list">
          {explanation.causes.map(({ text, fix }) => (
            <li key={text}>
              because {text}
              {fix !== null && <div class="command">fix: {fix}</div>}
            </li>
          ))}
          {(trace?.counters ?? []).map(({ place, name, by, text }) => (
            <li key={name} class="quiet">
              counter at {place}: {name} +{by} ({text})
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function outcomeText(trace: TracedFlow['trace']): string {
  if (trace === null) return 'No packet was sent: the name does not resolve';
  const { answer } = trace;
  switch (answer.kind) {
    case 'answered': {
      const ms = trace.answeredAfterMs;
      return ms === null
        ? 'Answered'
        : `Answered after ${ms < 1 ? `${Math.round(ms * 1000)} µs` : `${ms.toFixed(1)} ms`}`;
    }
    case 'refused':
    case 'unreachable':
      return `${answer.kind === 'refused' ? 'Refused' : 'Unreachable'}${answer.by === null ? ' by the client’s own socket' : ` by ${answer.by}`}: ${answer.text}`;
    case 'nothing':
      return answer.last === null
        ? 'No answer: the packet was not seen on any device'
        : `No answer: last seen at ${answer.last.place}, ${answer.last.device}`;
  }
}

/** The questions to name servers before the packet, and what came back. */
function Lookups({ flow: { lookups } }: { flow: TracedFlow }) {
  if (lookups.length === 0) return null;
  return (
    <section class="card" aria-label="DNS before it">
      <h2>DNS before it</h2>
      <ul class="plain-list">
        {lookups.map(({ name, type, server, said, trace: { answer, answeredAfterMs, legs } }, i) => (
          <li key={`${i} ${name}`}>
            <span class={answer.kind === 'answered' ? 'good' : 'bad'}>
              {answer.kind === 'answered' ? '✓' : '✕'}
            </span>{' '}
            {name} {type}: {said}
            <span class="quiet">
              {' '}
              {answeredAfterMs === null ? '' : `after ${answeredAfterMs.toFixed(2)} ms `}from {server},
              through{' '}
              {(legs[0]?.hops ?? []).map(({ place, deviceText }) => `${deviceText} (${place})`).join(', ') ||
                'no device'}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The text of an object in the node's kernel, read when it is opened. */
function ObjectDetails({ node, object }: ObjectQuestion) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>its text on {node}</summary>
      {isOpen && <RawText node={node} object={object} />}
    </details>
  );
}

function ExplainSteps({ flow: { explanation, agreement } }: { flow: TracedFlow }) {
  const node = explanation.packet?.node ?? null;
  const steps = agreement?.steps ?? explanation.steps.map((step) => ({ step, isRight: null, seen: null }));
  return (
    <section class="card" aria-label="What explain said">
      <h2>What explain said</h2>
      <ol class="explain-steps">
        {steps.map(({ step, isRight, seen }) => (
          <li key={step.text}>
            <span class={isRight === null ? 'quiet' : isRight ? 'good' : 'bad'}>
              {isRight === null ? '·' : isRight ? '✓' : '✗'}
            </span>
            <span>
              {step.text}
              {step.ruleOrKey !== null && <code>{step.ruleOrKey}</code>}
              {seen !== null && <span class="bad"> seen: {seen}</span>}
              {node !== null && isKernelObject(step.ruleOrKey) && (
                <ObjectDetails key={`${node} ${step.ruleOrKey}`} node={node} object={step.ruleOrKey} />
              )}
            </span>
          </li>
        ))}
      </ol>
      <p class="quiet">✓ the packet shows the same, ✗ it shows something else, · it does not show</p>
    </section>
  );
}
