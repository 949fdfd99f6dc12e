import { Fragment } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { ObjectQuestion, ObjectText } from '../../cluster/object-text.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import { kindOf, type Picture, type Step } from './path-drawing.ts';
import { type Area, layOutPath, lineText } from './path-layout.ts';
import { rawTextCommand } from './path-picture.ts';
import { useWidth } from './use-width.ts';

/** Draws the namespaces as boxes, the devices in them, and the way of the packet up to a step. */
export function PathPicture({
  picture,
  step,
  onStep,
}: {
  picture: Picture;
  step: number;
  onStep: (step: number) => void;
}) {
  const [frame, width] = useWidth();
  const layout = useMemo(() => layOutPath(picture, width), [picture, width]);
  const { steps } = picture;
  const current = steps[step];
  const here = layout.boxes.flatMap(({ stops }) => stops).find(({ stop }) => stop.id === current?.stop);
  const isProxied = steps.some(({ connection }) => connection === 'proxy');
  return (
    <>
      <div class="picture" ref={frame} style={{ height: `${layout.height}px` }}>
        <svg class="way" aria-hidden="true">
          {layout.lines.map(({ step: number, way, connection, points }) =>
            number > step ? null : <path key={number} class={`${way} ${connection}`} d={lineText(points)} />,
          )}
        </svg>
        <ol class="boxes">
          {layout.boxes.map((placed) => (
            <li key={placed.box.place} class={`box ${placed.box.kind}`} style={areaStyle(placed)}>
              <h3>
                <Breakable text={placed.box.place} />
              </h3>
              {placed.stops.map((one) => (
                <button
                  key={one.stop.id}
                  type="button"
                  data-stop={one.stop.id}
                  style={areaStyle(one, placed)}
                  class={`stop ${one.stop.kind} ${steps.slice(0, step + 1).some(({ stop }) => stop === one.stop.id) ? 'passed' : ''}`}
                  aria-pressed={current?.stop === one.stop.id}
                  onClick={() => onStep(nearest(steps, one.stop.id, step))}
                >
                  <Breakable text={one.stop.label} />
                </button>
              ))}
            </li>
          ))}
        </ol>
        {here && (
          <span
            class={`packet ${current?.connection}`}
            style={{ transform: `translate(${here.x}px, ${here.y + here.height / 2}px)` }}
            aria-hidden="true"
          />
        )}
      </div>
      <ul class="legend">
        <li>
          <LineSample kind="there client" /> {isProxied ? 'to the proxy' : 'to the server'}
        </li>
        <li>
          <LineSample kind="back client" /> {isProxied ? 'back from the proxy' : 'back to the client'}
        </li>
        {isProxied && (
          <>
            <li>
              <LineSample kind="there proxy" /> the proxy’s own connection, to the server
            </li>
            <li>
              <LineSample kind="back proxy" /> back to the proxy
            </li>
          </>
        )}
      </ul>
    </>
  );
}

/** A text that may break after its slashes too, as the layout reckons with. */
const Breakable = ({ text }: { text: string }) => (
  <span>
    {text.split(/(?<=\/)/).map((part, i) => (
      <Fragment key={i}>
        {i > 0 && <wbr />}
        {part}
      </Fragment>
    ))}
  </span>
);

const LineSample = ({ kind }: { kind: string }) => (
  <svg class="way-sample" width="28" height="8" aria-hidden="true">
    <path class={kind} d="M0 4L28 4" />
  </svg>
);

/** The style of an area; `inside`: of what it is placed in. */
const areaStyle = ({ x, y, width, height }: Area, inside: Pick<Area, 'x' | 'y'> = { x: 0, y: 0 }) => ({
  left: `${x - inside.x}px`,
  top: `${y - inside.y}px`,
  width: `${width}px`,
  height: `${height}px`,
});

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
          {place}, {hop === null ? labelOf(step) : `${hop.direction} ${hop.deviceText}`}
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

/** The kind of a stop of the picture, from its key: "node-1 | tables nf_tables rules". */
const labelOf = ({ stop }: Step): string => stop.replace(/^.* \| \w+ /, '');

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
