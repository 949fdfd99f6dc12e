import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Area, layOutPath, type PathLayout, type Point } from './path-layout.ts';
import { drawPath } from './path-picture.ts';
import { DRAWN_MODES, flowThrough } from './testing/drawn-flows.ts';

/** Of the page's widest frame, and of those of windows of 1280, 800 and 400 pixels. */
const WIDTHS = [1206, 1180, 734, 350];
const NODES = [1, 2, 3, 4, 5, 6];

/** Whether a piece of a line is inside an area: its edge alone does not count. */
function isInside([x0, y0]: Point, [x1, y1]: Point, { x, y, width, height }: Area): boolean {
  return (
    Math.max(x0, x1) > x &&
    Math.min(x0, x1) < x + width &&
    Math.max(y0, y1) > y &&
    Math.min(y0, y1) < y + height
  );
}

const overlap = (a: Area, b: Area): boolean => isInside([a.x, a.y], [a.x + a.width, a.y + a.height], b);

const isWithin = (inner: Area, outer: Area): boolean =>
  inner.x >= outer.x &&
  inner.y >= outer.y &&
  inner.x + inner.width <= outer.x + outer.width &&
  inner.y + inner.height <= outer.y + outer.height;

/** Returns what is wrong with a layout, in words. */
function faultsOf(layout: PathLayout, steps: ReturnType<typeof drawPath>['steps']): string[] {
  const { boxes, lines, width, height } = layout;
  const faults: string[] = [];
  const page = { x: 0, y: 0, width, height };
  const stops = boxes.flatMap((box) => box.stops.map((stop) => ({ box, stop })));
  for (const box of boxes) {
    if (!isWithin(box, page)) faults.push(`${box.box.place} is outside the picture`);
    for (const other of boxes)
      if (other !== box && overlap(box, other)) faults.push(`${box.box.place} over ${other.box.place}`);
  }
  for (const { box, stop } of stops) {
    if (!isWithin(stop, box)) faults.push(`${stop.stop.id} is outside its box`);
    for (const other of box.stops)
      if (other !== stop && overlap(stop, other)) faults.push(`${stop.stop.id} over ${other.stop.id}`);
  }
  for (const { step, points } of lines) {
    const ends = [steps[step - 1]?.stop, steps[step]?.stop];
    const own = stops.filter(({ stop }) => ends.includes(stop.stop.id)).map(({ box }) => box);
    const name = `the line ${ends.join(' → ')}`;
    for (const [i, end] of points.entries()) {
      const start = points[i - 1];
      if (start === undefined) continue;
      if (start[0] !== end[0] && start[1] !== end[1]) faults.push(`${name} is not straight`);
      if (![start, end].every(([x, y]) => x >= 0 && x <= width && y >= 0 && y <= height))
        faults.push(`${name} leaves the picture`);
      for (const box of boxes)
        if (!own.includes(box) && isInside(start, end, box)) faults.push(`${name} crosses ${box.box.place}`);
      for (const { stop } of stops)
        if (isInside(start, end, stop)) faults.push(`${name} crosses ${stop.stop.id}`);
      for (const { x, y, width: wide, title } of boxes)
        if (isInside(start, end, { x, y, width: wide, height: title }))
          faults.push(`${name} crosses a title`);
    }
  }
  return faults;
}

for (const mode of DRAWN_MODES)
  test(`${mode}: no line goes through a box, a stop or a title, and nothing overlaps`, () => {
    for (const nodes of NODES)
      for (const isTunnelled of [false, true])
        for (const isDirect of [false, true])
          for (const width of WIDTHS) {
            const picture = drawPath(flowThrough(mode, { nodes, isTunnelled, isDirect }));
            const layout = layOutPath(picture, width);
            const at = `${nodes} nodes, ${width} pixels, direct ${isDirect}, tunnel ${isTunnelled}`;
            assert.deepEqual(faultsOf(layout, picture.steps), [], at);
            // Each packet goes on from stop to stop.
            const moves = picture.steps.filter(({ leg, stop }, i) => {
              const before = picture.steps[i - 1];
              return before?.leg === leg && before.stop !== stop;
            });
            assert.equal(layout.lines.length, moves.length, at);
          }
  });

test('uplinks of neighbours face each other at one height, and the line between them is straight', () => {
  const picture = drawPath(flowThrough('nftables', { nodes: 2, isTunnelled: false, isDirect: false }));
  const layout = layOutPath(picture, 1206);
  const uplinks = layout.boxes.flatMap(({ stops }) =>
    stops.filter(({ stop }) => stop.label === 'uplink eth0'),
  );
  assert.equal(uplinks.length, 2);
  assert.equal(uplinks[0]?.y, uplinks[1]?.y);
  const between = layout.lines.filter(({ step }) =>
    [picture.steps[step - 1], picture.steps[step]].every((one) => one?.stop.endsWith('uplink eth0')),
  );
  assert.deepEqual(
    between.map(({ points }) => points.length),
    [2, 2],
  );
  for (const { points } of between) assert.equal(points[0]?.[1], points[1]?.[1]);
});

test('boxes are below one another where they do not fit beside one another', () => {
  const picture = drawPath(flowThrough('nftables', { nodes: 2, isTunnelled: false, isDirect: false }));
  const columns = (width: number) => new Set(layOutPath(picture, width).boxes.map(({ x }) => x)).size;
  assert.equal(columns(1206), 4);
  assert.equal(columns(734), 4);
  assert.equal(columns(350), 1);
});

test('an empty picture has no size', () => {
  const layout = layOutPath({ boxes: [], steps: [] }, 900);
  assert.deepEqual([layout.height > 100, layout.boxes, layout.lines], [false, [], []]);
});
