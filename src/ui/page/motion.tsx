import { useEffect, useRef } from 'preact/hooks';
import { type PlacedLink, pointAt } from './map-geometry.ts';
import { isFailure } from './verdicts.ts';

/** Enough to follow with the eye; more would cost time without showing more. */
const FRAME_MS = 33;
const MAX_DOTS = 160;
const MAX_DOTS_OF_LINK = 4;
const CROSSING_MS = 1600;
const RADIUS = 2.5;
/** Half the side of the square that holds a dot, its soft edge included. */
const CLEARED = 4;

/** Draws dots that move along the links, more of them on busier ones; connections that fail stop at the end. */
export function Motion({
  links,
  width,
  height,
}: {
  links: readonly PlacedLink[];
  width: number;
  height: number;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const current = useRef(links);
  current.current = links;
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext('2d');
    if (!element || !context) return;
    let frame = 0;
    let drawn = 0;
    let points: [x: number, y: number][] = [];
    const draw = (now: number) => {
      frame = requestAnimationFrame(draw);
      if (now - drawn < FRAME_MS) return;
      drawn = now;
      // Not the whole canvas, which is as high as the map.
      for (const [x, y] of points) context.clearRect(x - CLEARED, y - CLEARED, 2 * CLEARED, 2 * CLEARED);
      points = [];
      const { color: good, outlineColor: bad } = getComputedStyle(element);
      let dots = 0;
      for (const { link, curve } of current.current) {
        const count = Math.min(MAX_DOTS_OF_LINK, 1 + Math.floor(Math.log10(1 + link.rate)));
        if (dots + count > MAX_DOTS) break;
        dots += count;
        context.fillStyle = isFailure(link.verdict) ? bad : good;
        for (let i = 0; i < count; i++) {
          const [x, y] = pointAt(curve, (now / CROSSING_MS + i / count + hash(link.id)) % 1);
          points.push([x, y]);
          context.beginPath();
          context.arc(x, y, RADIUS, 0, 2 * Math.PI);
          context.fill();
        }
      }
    };
    frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, [width, height]);
  return (
    <div aria-hidden="true">
      <canvas ref={canvas} class="motion" width={width} height={height} />
    </div>
  );
}

/** A phase for each link, so that the dots of different links do not move together. */
function hash(text: string): number {
  let sum = 0;
  for (let i = 0; i < text.length; i++) sum = (sum * 31 + text.charCodeAt(i)) % 997;
  return sum / 997;
}
