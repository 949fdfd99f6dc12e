import type { Box, Picture, Step, Stop } from './path-drawing.ts';

/** A rectangle in pixels of the picture. */
export interface Area {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface PlacedStop extends Area {
  readonly stop: Stop;
}

export interface PlacedBox extends Area {
  readonly box: Box;
  /** The height of its title, at its top. */
  readonly title: number;
  /** In the order of the way. */
  readonly stops: readonly PlacedStop[];
}

export type Point = readonly [x: number, y: number];

/** The way of the packet from the previous step to one. */
export interface PlacedLine {
  /** The number of the step that it leads to. */
  readonly step: number;
  readonly way: Step['way'];
  readonly connection: Step['connection'];
  /** Straight pieces, each horizontal or vertical. */
  readonly points: readonly Point[];
}

export interface PathLayout {
  readonly width: number;
  readonly height: number;
  readonly boxes: readonly PlacedBox[];
  readonly lines: readonly PlacedLine[];
}

const MIN_BOX = 150;
const MAX_BOX = 420;
/** Between boxes, for lines. */
const GAP = 44;
/** Beside boxes that are below one another, and below boxes that are beside one another, for lines. */
const CHANNEL = 28;
/** Beside the stops of a box, for lines that pass some of them. */
const LANE = 26;
const PADDING = 12;
const STOP_GAP = 16;
const TITLE_LINE = 17;
const STOP_LINE = 19;
/** Padding and border of a stop. */
const STOP_EDGES = 16;
/** The widest usual letters of a stop and of a title. */
const STOP_LETTER = 7.4;
const TITLE_LETTER = 7.2;
/** Between lines of different kinds on the same way. */
const LINE_GAP = 5;

/**
 * Places the boxes of a picture and the lines between their stops, in a given width. Lines pass between boxes, beside stops, and
 * never through either: those of a box leave it at the side that faces the next. Boxes that do not fit beside one another are
 * below one another.
 */
export function layOutPath(picture: Picture, width: number): PathLayout {
  const { boxes } = picture;
  const room = width - (boxes.length - 1) * GAP;
  return room >= boxes.length * MIN_BOX
    ? layOutBeside(picture, width, Math.min(MAX_BOX, Math.floor(room / Math.max(1, boxes.length))))
    : layOutBelow(picture, width);
}

function layOutBeside({ boxes, steps }: Picture, width: number, boxWidth: number): PathLayout {
  const stopWidth = boxWidth - 2 * LANE;
  const titleHeight = Math.max(0, ...boxes.map(({ place }) => titleHeightOf(place, boxWidth)));
  const heights = boxes.map(({ stops }) => stops.map(({ label }) => stopHeight(label, stopWidth)));
  const height =
    titleHeight +
    PADDING +
    Math.max(0, ...heights.map((all) => all.reduce((sum, one) => sum + one + STOP_GAP, 0)));
  // In the middle, if there is more room than the boxes need.
  const left = Math.max(0, Math.floor((width - boxes.length * boxWidth - (boxes.length - 1) * GAP) / 2));
  const placed = boxes.map((box, i): PlacedBox => {
    const x = left + i * (boxWidth + GAP);
    const area = { x, y: 0, width: boxWidth, height };
    return { ...area, box, title: titleHeight, stops: stacked(box, area, titleHeight, stopWidth) };
  });
  const lines = routed(placed, steps, (from, to, shift) => {
    const [a, b] = [placed.indexOf(from.box), placed.indexOf(to.box)];
    const isRight = b > a;
    const start = edgeOf(from.stop, isRight ? 'right' : 'left', shift);
    const end = edgeOf(to.stop, isRight ? 'left' : 'right', shift);
    const beside = (box: PlacedBox, side: 'left' | 'right') =>
      (side === 'right' ? box.x + box.width + GAP / 2 : box.x - GAP / 2) + shift;
    const first = beside(from.box, isRight ? 'right' : 'left');
    if (Math.abs(a - b) === 1) return [start, [first, start[1]], [first, end[1]], end];
    const last = beside(to.box, isRight ? 'left' : 'right');
    const below = height + CHANNEL / 2 + shift;
    return [start, [first, start[1]], [first, below], [last, below], [last, end[1]], end];
  });
  const usesChannel = lines.some(({ points }) => points.some(([, y]) => y > height));
  return { width, height: height + (usesChannel ? CHANNEL : 0), boxes: placed, lines };
}

function layOutBelow({ boxes, steps }: Picture, width: number): PathLayout {
  const boxWidth = width - 2 * CHANNEL;
  const stopWidth = boxWidth - 2 * LANE;
  let y = 0;
  const placed = boxes.map((box): PlacedBox => {
    const titleHeight = titleHeightOf(box.place, boxWidth);
    const stops = box.stops.reduce((sum, { label }) => sum + stopHeight(label, stopWidth) + STOP_GAP, 0);
    const area = { x: CHANNEL, y, width: boxWidth, height: titleHeight + PADDING + stops };
    y += area.height + STOP_GAP;
    return { ...area, box, title: titleHeight, stops: inOrder(box, area, titleHeight, stopWidth) };
  });
  const lines = routed(placed, steps, (from, to, shift, way) => {
    const side = way === 'there' ? 'left' : 'right';
    const x = (side === 'left' ? CHANNEL / 2 : width - CHANNEL / 2) + shift;
    const start = edgeOf(from.stop, side, shift);
    const end = edgeOf(to.stop, side, shift);
    return [start, [x, start[1]], [x, end[1]], end];
  });
  return { width, height: Math.max(0, y - STOP_GAP), boxes: placed, lines };
}

const byDepth = (stops: readonly Stop[]): Stop[] => stops.toSorted((a, b) => depthOf(a) - depthOf(b));

/** How deep in a node a device is: those of pods are at the top, the uplink to other nodes at the bottom. */
function depthOf({ kind, label }: Stop): number {
  if (isUplink({ kind, label })) return 5;
  if (kind === 'proxy') return 4;
  if (kind === 'tables') return 3;
  return label.startsWith('veth ') ? 1 : 2;
}

const isUplink = ({ kind, label }: Pick<Stop, 'kind' | 'label'>): boolean =>
  kind === 'tunnel' || (kind === 'device' && label.startsWith('uplink '));

/** Stacks the stops of a box by depth: uplinks at the bottom, where those of other nodes are at the same height. */
function stacked(box: Box, area: Area, titleHeight: number, width: number): PlacedStop[] {
  if (box.kind !== 'node') {
    const stops = inOrder(box, area, titleHeight, width);
    // Outside hosts are at the wire, as uplinks are.
    const shift = box.kind === 'other' ? area.height - STOP_GAP - bottomOf(stops) : 0;
    return stops.map((stop) => ({ ...stop, y: stop.y + shift }));
  }
  const stops = byDepth(box.stops);
  const below = stops.filter(isUplink);
  const top = placeStops(
    below.length === stops.length ? [] : stops.filter((one) => !isUplink(one)),
    area,
    area.y + titleHeight + PADDING,
    width,
  );
  const heightOf = below.reduce((sum, { label }) => sum + stopHeight(label, width) + STOP_GAP, 0);
  return [...top, ...placeStops(below, area, area.y + area.height - heightOf, width)];
}

const inOrder = ({ stops }: Box, area: Area, titleHeight: number, width: number): PlacedStop[] =>
  placeStops(stops, area, area.y + titleHeight + PADDING, width);

function placeStops(stops: readonly Stop[], area: Area, top: number, width: number): PlacedStop[] {
  let y = top;
  return stops.map((stop) => {
    const height = stopHeight(stop.label, width);
    const placed = { stop, x: area.x + LANE, y, width, height };
    y += height + STOP_GAP;
    return placed;
  });
}

const bottomOf = (stops: readonly PlacedStop[]): number =>
  Math.max(0, ...stops.map(({ y, height }) => y + height));

interface End {
  readonly box: PlacedBox;
  readonly stop: PlacedStop;
}

/** Returns the lines of all steps; `across`: between two boxes. */
function routed(
  boxes: readonly PlacedBox[],
  steps: readonly Step[],
  across: (from: End, to: End, shift: number, way: Step['way']) => readonly Point[],
): PlacedLine[] {
  const ends = new Map(
    boxes.flatMap((box) => box.stops.map((stop): [string, End] => [stop.stop.id, { box, stop }])),
  );
  return steps.flatMap((step, i): PlacedLine[] => {
    const before = steps[i - 1];
    const from = before && ends.get(before.stop);
    const to = ends.get(step.stop);
    // A packet begins where it was made, not where the one before it was seen last.
    if (before?.leg !== step.leg || !from || !to || from === to) return [];
    const { way, connection } = step;
    const shift = shiftOf(step);
    const points =
      from.box === to.box ? within(from.box, from.stop, to.stop, shift) : across(from, to, shift, way);
    return [{ step: i, way, connection, points: bendsOf(points) }];
  });
}

/** The way back is beside the way there, and the connection of a proxy beside that of the client. */
const shiftOf = ({ way, connection }: Pick<Step, 'way' | 'connection'>): number =>
  ((way === 'there' ? -1 : 1) * (connection === 'client' ? 1 : 2) * LINE_GAP) / 1.25;

/** Between two stops of a box: straight, or beside those between them. */
function within(box: PlacedBox, from: PlacedStop, to: PlacedStop, shift: number): Point[] {
  const [upper, lower] = from.y < to.y ? [from, to] : [to, from];
  const isBetween = (one: PlacedStop) => one.y > upper.y && one.y < lower.y;
  if (!box.stops.some(isBetween)) {
    const x = upper.x + upper.width / 2 + shift;
    const points: Point[] = [
      [x, upper.y + upper.height],
      [x, lower.y],
    ];
    return from === upper ? points : points.reverse();
  }
  const side = shift < 0 ? 'left' : 'right';
  const x = (side === 'left' ? box.x + LANE / 2 : box.x + box.width - LANE / 2) + shift;
  const start = edgeOf(from, side, shift);
  const end = edgeOf(to, side, shift);
  return [start, [x, start[1]], [x, end[1]], end];
}

const edgeOf = (stop: PlacedStop, side: 'left' | 'right', shift: number): Point => [
  side === 'left' ? stop.x : stop.x + stop.width,
  stop.y + stop.height / 2 + shift,
];

/** Leaves out points in which a line does not bend. */
const bendsOf = (points: readonly Point[]): Point[] =>
  points.filter((point, i) => {
    const [before, after] = [points[i - 1], points[i + 1]];
    if (before === undefined || after === undefined) return true;
    return !([0, 1] as const).some((axis) => before[axis] === point[axis] && point[axis] === after[axis]);
  });

const stopHeight = (label: string, width: number): number =>
  STOP_EDGES + STOP_LINE * linesOf(label, Math.floor((width - STOP_EDGES - 6) / STOP_LETTER));

const titleHeightOf = (place: string, width: number): number =>
  PADDING + TITLE_LINE * linesOf(place, Math.floor((width - 2 * PADDING) / TITLE_LETTER));

/** How many lines a text needs. Words break after hyphens and slashes, and where they are longer than a line. */
function linesOf(text: string, letters: number): number {
  const room = Math.max(4, letters);
  let lines = 1;
  let used = 0;
  for (const word of text.split(/(?<=[\s/-])/)) {
    if (used > 0 && used + word.trimEnd().length > room) {
      lines++;
      used = 0;
    }
    lines += Math.max(0, Math.ceil(word.length / room) - 1);
    used = word.length > room ? word.length % room : used + word.length;
  }
  return lines;
}

/** Renders a line for SVG. */
export const lineText = (points: readonly Point[]): string =>
  points.map(([x, y], i) => `${i === 0 ? 'M' : 'L'}${x} ${y}`).join('');
