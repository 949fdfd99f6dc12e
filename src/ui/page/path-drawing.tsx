import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ObjectQuestion, ObjectText } from '../../cluster/object-text.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import { kindOf, type Picture, rawTextCommand, type Step } from './path-picture.ts';

interface Point {
  readonly left: number;
  readonly x: number;
  readonly y: number;
}

/** Draws the namespaces as boxes, the devices in them, and the way of the packet up to a step. */
export function PathPicture({
  picture: { boxes, steps },
  step,
  onStep,
}: {
  picture: Picture;
  step: number;
  onStep: (step: number) => void;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const [points, setPoints] = useState<ReadonlyMap<string, Point>>(new Map());
  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const measure = () => {
      const origin = element.getBoundingClientRect();
      const found = new Map<string, Point>();
      for (const stop of element.querySelectorAll<HTMLElement>('[data-stop]')) {
        const at = stop.getBoundingClientRect();
        found.set(stop.dataset['stop'] ?? '', {
          left: at.left - origin.left,
          x: at.left - origin.left + at.width / 2,
          y: at.top - origin.top + at.height / 2,
        });
      }
      setPoints(found);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [boxes]);
  const current = steps[step];
  const here = current && points.get(current.stop);
  return (
    <div class="picture" ref={frame}>
      <svg class="way" aria-hidden="true">
        {steps.slice(1, step + 1).map((one, i) => {
          const start = points.get(steps[i]?.stop ?? '');
          const end = points.get(one.stop);
          if (!start || !end) return null;
          // The way back is drawn beside the way there.
          const shift = one.way === 'there' ? -4 : 4;
          return (
            <path
              key={`${i} ${one.stop}`}
              class={one.way}
              d={`M${start.x + shift} ${start.y + shift}L${end.x + shift} ${end.y + shift}`}
            />
          );
        })}
      </svg>
      <ol class="boxes">
        {boxes.map(({ place, kind, stops }) => (
          <li key={place} class={`box ${kind}`}>
            <h3>{place}</h3>
            {stops.map((stop) => {
              const index = nearest(steps, stop.id, step);
              const isPassed = steps.slice(0, step + 1).some((one) => one.stop === stop.id);
              return (
                <button
                  key={stop.id}
                  type="button"
                  data-stop={stop.id}
                  class={`stop ${stop.kind} ${isPassed ? 'passed' : ''}`}
                  aria-pressed={current?.stop === stop.id}
                  onClick={() => onStep(index)}
                >
                  {stop.label}
                </button>
              );
            })}
          </li>
        ))}
      </ol>
      {here && (
        <span
          class="packet"
          style={{ transform: `translate(${here.left}px, ${here.y}px)` }}
          aria-hidden="true"
        />
      )}
    </div>
  );
}

/** Chooses the step of a stop that comes next, so that choosing a stop again shows the way back. */
function nearest(steps: readonly Step[], stop: string, current: number): number {
  const next = steps.findIndex((one, i) => i > current && one.stop === stop);
  return next === -1 ? steps.findIndex((one) => one.stop === stop) : next;
}

/** The facts of a step: addresses, what changed them, and how to read the object itself. */
export function HopDetails({
  step,
  command,
  entryNode,
}: {
  step: Step;
  command: string;
  /** The node whose tables or programs handle the client's packets; null: none. */
  entryNode: string | null;
}) {
  const { hop, changes, place } = step;
  return (
    <div class="hop">
      <dl>
        <dt>where</dt>
        <dd>
          {place}
          {hop === null ? '' : `, ${hop.direction} ${hop.deviceText}`}
        </dd>
        {hop !== null && (
          <>
            <dt>time</dt>
            <dd>{Math.round(hop.sinceUs)} µs after the start</dd>
            <dt>packet</dt>
            <dd>
              {endText(hop.source)} → {endText(hop.destination)}
            </dd>
            {hop.tunnel !== null && (
              <>
                <dt>tunnel</dt>
                <dd>
                  {hop.tunnel.source} → {hop.tunnel.destination}
                </dd>
              </>
            )}
          </>
        )}
      </dl>
      {changes.map(({ field, before, after, by }) => (
        <div key={field} class="change">
          <p>
            The {field} changed from <code>{before}</code> to <code>{after}</code>
            {by.length === 0
              ? ', restored by connection tracking or by the program that translated.'
              : ' by:'}
          </p>
          {by.map((object) => {
            const raw = rawTextCommand(object, place, command);
            const node = nodeOf(object, place, entryNode);
            return (
              <div key={object} class="command">
                {object}
                {raw !== null && <div class="quiet">its text: {raw}</div>}
                {node !== null && <RawText key={`${node} ${object}`} node={node} object={object} />}
              </div>
            );
          })}
        </div>
      ))}
    </div>
  );
}

/** The node whose kernel has an object. Programs at the sockets of a pod are in the maps of its node. */
function nodeOf(object: string, place: string, entryNode: string | null): string | null {
  if (kindOf(place) === 'node') return place;
  return object.startsWith('bpf: ') ? entryNode : null;
}

/** The text of an object in the node's kernel, as its tool prints it now. */
export function RawText({ node, object }: ObjectQuestion) {
  const [answer, setAnswer] = useState<ObjectText | ServerRefusal | null>(null);
  useEffect(() => {
    let isShown = true;
    void askServer<ObjectText>('POST object', { node, object })
      .catch((error: ServerRefusal) => error)
      .then((text) => {
        if (isShown) setAnswer(text);
      });
    return () => {
      isShown = false;
    };
  }, [node, object]);
  if (answer === null) return <div class="quiet">Reading it…</div>;
  if (answer instanceof Error) {
    return (
      <div class="quiet">
        {answer.message}
        {answer.hint === null ? '' : `: ${answer.hint}`}
      </div>
    );
  }
  return (
    <div class="raw">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it */}
      <pre tabIndex={0}>
        {answer.text}
        {answer.isCut ? '\n… more: use the command above' : ''}
      </pre>
    </div>
  );
}

/** "10.244.1.2:80", "[fd00::1]:80" */
function endText({ ip, port }: { ip: string; port: number }): string {
  if (port === 0) return ip;
  return ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;
}
