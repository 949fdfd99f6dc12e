import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { type PlacedLink, pointAt } from './map-geometry.ts';
import { isFailure } from './verdicts.ts';

/** Enough to follow with the eye; more would cost time without showing more. */
const FRAME_MS = 33;
const MAX_DOTS = 160;
const MAX_DOTS_OF_LINK = 4;
const CROSSING_MS = 1600;
/** In which the parts of another view are drawn. */
const PAUSE_MS = 150;
const RADIUS = 2.5;
/** Half the side of the square that holds a dot, its soft edge included. */
const CLEARED = 4;

/**
 * Draws dots that move along the links, more of them on busier ones; connections that fail stop at the end. The canvas is as
 * high as the window and follows it over the map: a browser copies the whole canvas for each frame.
 */
export function Motion({
  links,
  width,
  scale,
  view,
}: {
  links: readonly PlacedLink[];
  width: number;
  /** The zoom of the map: pixels of the window for one of the map. */
  scale: number;
  /** The view of the map. While another view is drawn, the dots wait: each frame has time for one of both. */
  view: unknown;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const current = useRef(links);
  current.current = links;
  const pausedUntil = useRef(0);
  useLayoutEffect(() => {
    pausedUntil.current = performance.now() + PAUSE_MS;
  }, [view]);
  const height = Math.ceil(useWindowHeight() / scale);
  useEffect(() => {
    const element = canvas.current;
    const map = element?.parentElement;
    const context = element?.getContext('2d');
    if (!element || !map || !context) return;
    let frame = 0;
    let drawn = 0;
    let points: [x: number, y: number][] = [];
    const draw = (now: number) => {
      frame = requestAnimationFrame(draw);
      if (now - drawn < FRAME_MS || now < pausedUntil.current) return;
      drawn = now;
      const top = Math.max(0, Math.floor(-map.getBoundingClientRect().top / scale));
      element.style.top = `${top}px`;
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
          const [x, yOnMap] = pointAt(curve, (now / CROSSING_MS + i / count + hash(link.id)) % 1);
          const y = yOnMap - top;
          if (y < -RADIUS || y > height + RADIUS) continue;
          points.push([x, y]);
          context.beginPath();
          context.arc(x, y, RADIUS, 0, 2 * Math.PI);
          context.fill();
        }
      }
    };
    frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, [width, height, scale]);
  return (
    <div class="motion" aria-hidden="true">
      <canvas ref={canvas} width={width} height={height} />
    </div>
  );
}

/** Returns the height of the window, also when it changes. */
function useWindowHeight(): number {
  const [height, setHeight] = useState(innerHeight);
  useEffect(() => {
    const onResize = () => setHeight(innerHeight);
    addEventListener('resize', onResize);
    return () => removeEventListener('resize', onResize);
  }, []);
  return height;
}

/** A phase for each link, so that the dots of different links do not move together. */
function hash(text: string): number {
  let sum = 0;
  for (let i = 0; i < text.length; i++) sum = (sum * 31 + text.charCodeAt(i)) % 997;
  return sum / 997;
}
