import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { TracedFlow } from '../../cluster/trace-flow.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import type { ClusterData } from './cluster-store.ts';
import { type View, viewLink } from './link-state.ts';
import { HopDetails, PathPicture } from './path-drawing.tsx';
import { ExplainSteps, Lookups, Verdict } from './path-outcome.tsx';
import { drawPath } from './path-picture.ts';

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
  const { lookups } = flow;
  // A name that does not resolve has questions only.
  const usual = flow.trace === null && lookups.length > 0 ? lookups.length - 1 : null;
  const [lookup, setLookup] = useState(usual);
  const picture = useMemo(() => drawPath(flow, lookup), [flow, lookup]);
  const last = picture.steps.length - 1;
  const [step, setStep] = useState(0);
  const [isPlaying, setPlaying] = useState(moves);
  useEffect(() => setLookup(usual), [flow]);
  useEffect(() => {
    setStep(0);
    setPlaying(moves);
  }, [picture]);
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
              {lookups.length > 0 && <DrawnPacket flow={flow} lookup={lookup} choose={setLookup} />}
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

/** Chooses what the picture shows: one of the questions to name servers, or the packet after them. */
function DrawnPacket({
  flow: { lookups, trace },
  lookup,
  choose,
}: {
  flow: TracedFlow;
  lookup: number | null;
  choose: (lookup: number | null) => void;
}) {
  return (
    <select
      aria-label="Packet in the picture"
      value={lookup ?? ''}
      onChange={({ currentTarget: { value } }) => choose(value === '' ? null : Number(value))}
    >
      {lookups.map(({ name, type }, i) => (
        <option key={`${i} ${name}`} value={i}>
          DNS: {name} {type}
        </option>
      ))}
      {trace !== null && <option value="">the packet itself</option>}
    </select>
  );
}
