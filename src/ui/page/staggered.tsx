import type { ComponentChild } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

/**
 * Draws a part of the page a number of frames after its value has changed, always with the newest value. Parts that change
 * together and would need too long for one frame get different numbers. `draw` reads nothing that changes but the value: it is
 * not called while that stays the same.
 */
export function Staggered<T>({
  value,
  frames,
  draw,
}: {
  value: T;
  frames: number;
  draw: (value: T) => ComponentChild;
}) {
  const shown = useDelayed(value, frames);
  // The same element again: its part is not compared.
  return <>{useMemo(() => draw(shown), [shown])}</>;
}

/** Returns the value as it was some frames ago; a new value does not extend the delay of one that waits already. */
export function useDelayed<T>(value: T, frames: number): T {
  const [shown, setShown] = useState(() => value);
  const newest = useRef(value);
  newest.current = value;
  const isBehind = shown !== value;
  useLayoutEffect(() => {
    if (!isBehind) return;
    let left = frames;
    const step = () => {
      left--;
      if (left > 0) request = requestAnimationFrame(step);
      else setShown(() => newest.current);
    };
    let request = requestAnimationFrame(step);
    return () => cancelAnimationFrame(request);
  }, [isBehind, frames]);
  return shown;
}
