import type { MapLink, MapRow, MapRows } from './map-rows.ts';

/** Pixels. */
export const ROW_HEIGHT = 34;
const ROW_GAP = 4;
const HEADING_HEIGHT = 28;
const MIN_GAP = 36;

export interface PlacedRow {
  readonly row: MapRow;
  readonly x: number;
  readonly y: number;
  readonly width: number;
}

export interface MapColumn {
  readonly x: number;
  readonly width: number;
  readonly rows: readonly PlacedRow[];
}

export interface PlacedLink {
  readonly link: MapLink;
  /** A cubic Bézier curve. */
  readonly curve: readonly [
    x0: number,
    y0: number,
    x1: number,
    y1: number,
    x2: number,
    y2: number,
    x3: number,
    y3: number,
  ];
  /** Pixels. */
  readonly thickness: number;
}

export interface MapGeometry {
  readonly width: number;
  readonly height: number;
  readonly columns: readonly MapColumn[];
  readonly links: readonly PlacedLink[];
}

/** Places the rows in three columns of a given total width, and the links between them. */
export function placeMap({ clients, services, endpoints, links }: MapRows, width: number): MapGeometry {
  const gap = Math.max(MIN_GAP, Math.round(width * 0.12));
  const column = Math.max(60, Math.floor((width - 2 * gap) / 3));
  const columns = [clients, services, endpoints].map((rows, i) =>
    placeColumn(rows, i * (column + gap), column),
  );
  const places = new Map(columns.flatMap(({ rows }) => rows.map((one) => [one.row.id, one])));
  return {
    width,
    height: Math.max(...columns.map(({ height }) => height)),
    columns,
    links: placeLinks(links, places),
  };
}

function placeColumn(rows: readonly MapRow[], x: number, width: number): MapColumn & { height: number } {
  let y = 0;
  const placed = rows.map((row): PlacedRow => {
    if (row.heading !== null) y += HEADING_HEIGHT;
    const at = { row, x, y, width };
    y += ROW_HEIGHT + ROW_GAP;
    return at;
  });
  return { x, width, rows: placed, height: y };
}

/** Links at one side of a row are spread over its height, in the order of their other ends, so that few cross. */
function placeLinks(links: readonly MapLink[], places: ReadonlyMap<string, PlacedRow>): PlacedLink[] {
  const found = links.flatMap((link) => {
    const from = places.get(link.from);
    const to = places.get(link.to);
    return from && to ? [{ link, from, to }] : [];
  });
  const starts = spread(
    found,
    ({ from }) => from,
    ({ to }) => to.y,
  );
  const ends = spread(
    found,
    ({ to }) => to,
    ({ from }) => from.y,
  );
  return found.map((one): PlacedLink => {
    const x0 = one.from.x + one.from.width;
    const x3 = one.to.x;
    const y0 = one.from.y + (starts.get(one) ?? 0);
    const y3 = one.to.y + (ends.get(one) ?? 0);
    const bend = (x3 - x0) / 2;
    return {
      link: one.link,
      curve: [x0, y0, x0 + bend, y0, x3 - bend, y3, x3, y3],
      // In steps, so that a rate that hardly changes redraws nothing.
      thickness: Math.min(6, Math.round(3 + Math.log10(1 + one.link.rate) * 3) / 2),
    };
  });
}

function spread<T>(
  list: readonly T[],
  rowOf: (one: T) => PlacedRow,
  orderOf: (one: T) => number,
): Map<T, number> {
  const byRow = new Map<PlacedRow, T[]>();
  for (const one of list) byRow.set(rowOf(one), [...(byRow.get(rowOf(one)) ?? []), one]);
  const offsets = new Map<T, number>();
  for (const members of byRow.values()) {
    members.sort((a, b) => orderOf(a) - orderOf(b));
    for (const [i, one] of members.entries()) offsets.set(one, ((i + 1) * ROW_HEIGHT) / (members.length + 1));
  }
  return offsets;
}

/** Renders a curve for SVG. */
export const curveText = ([x0, y0, x1, y1, x2, y2, x3, y3]: PlacedLink['curve']): string =>
  `M${x0} ${y0}C${x1} ${y1} ${x2} ${y2} ${x3} ${y3}`;

/** Returns the point of a curve at `t`, from 0 (start) to 1 (end). */
export function pointAt(
  [x0, y0, x1, y1, x2, y2, x3, y3]: PlacedLink['curve'],
  t: number,
): [x: number, y: number] {
  const u = 1 - t;
  const [a, b, c, d] = [u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t];
  return [a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3];
}
