import { useRef, useState } from 'preact/hooks';

/** Until it is measured. */
const USUAL_WIDTH = 900;

/** Measures the width of an element, also when it changes. */
export function useWidth(): [(element: HTMLDivElement | null) => void, number] {
  const [width, setWidth] = useState(USUAL_WIDTH);
  const observer = useRef<ResizeObserver | null>(null);
  const put = useRef((element: HTMLDivElement | null) => {
    observer.current?.disconnect();
    if (!element) return;
    setWidth(element.clientWidth);
    observer.current = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.current.observe(element);
  });
  return [put.current, width];
}
