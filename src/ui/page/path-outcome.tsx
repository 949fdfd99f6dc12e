import { useState } from 'preact/hooks';
import type { ObjectQuestion } from '../../cluster/object-text.ts';
import type { TracedFlow } from '../../cluster/trace-flow.ts';
import { RawText } from './path-drawing.tsx';
import { isKernelObject } from './path-picture.ts';

/** The outcome of a traced packet, with the reasons if it failed. */
export function Verdict({ flow: { explanation, trace, agreement } }: { flow: TracedFlow }) {
  const isAnswered = trace?.answer.kind === 'answered';
  const said = explanation.verdict.toUpperCase();
  const cut = (trace?.sizes ?? []).filter(({ passes, full }) => passes < full);
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
      {cut.map(({ way, passes, last, next, toldBy }) => (
        <p key={way} class={toldBy === null ? 'bad' : 'quiet'}>
          Packets {way === 'there' ? 'to the server' : 'to the client'} larger than {passes} bytes
          {toldBy === null ? ' vanish' : ` are refused by ${toldBy}, and TCP sends smaller ones`}
          {toldBy === null && last && next
            ? ` between ${last.place}, ${last.device} and ${next.place}, ${next.device}: a smaller MTU, or a rule that drops by size`
            : ''}
        </p>
      ))}
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
        ? 'Delivered'
        : `Delivered after ${ms < 1 ? `${Math.round(ms * 1000)} µs` : `${ms.toFixed(1)} ms`}`;
    }
    case 'refused':
    case 'unreachable':
      return `${answer.kind === 'refused' ? 'Rejected' : 'Unreachable'}${answer.by === null ? ' by the client’s own socket' : ` by ${answer.by}`}: ${answer.text}`;
    case 'nothing':
      return answer.last === null
        ? 'No answer: the packet was not seen on any device'
        : `No answer: last seen at ${answer.last.place}, ${answer.last.device}`;
  }
}

/** The questions to name servers before the packet, and what came back. */
export function Lookups({ flow: { lookups } }: { flow: TracedFlow }) {
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

/** The steps of explain, each compared with the packet. */
export function ExplainSteps({ flow: { explanation, agreement } }: { flow: TracedFlow }) {
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
