/** Measures the frames of a page in the browser. The functions below run there, as text: this project has no DOM types. */
import type { Page } from 'playwright-core';

/** What a browser has drawn within some seconds. */
export interface Frames {
  readonly count: number;
  /** Milliseconds between frames. */
  readonly median: number;
  readonly p99: number;
  readonly longest: number;
  /** Frames that took more than 50 ms, and the longest of them by the browser's own account (Long Animation Frames API). */
  readonly slow: number;
  readonly slowest: number;
  /** Processor time of the longest task of the page, in milliseconds: other work on the machine makes it no longer. */
  readonly busiest: number;
  /** Processor time of the page between two frames, in milliseconds: the most, and how often it was over 50 ms. */
  readonly work: number;
  readonly overworked: number;
}

/** An event of Chromium's trace; times in microseconds. */
interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur?: number;
  /** Processor time. */
  readonly tdur?: number;
}

const MAX_FRAME_MS = 50;

const START = `(() => {
  const frames = globalThis.frames_ = { times: [], slow: [], stop: false };
  const draw = (now) => { frames.times.push(now); if (!frames.stop) requestAnimationFrame(draw); };
  requestAnimationFrame(draw);
  frames.observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) frames.slow.push(entry.duration);
  });
  frames.observer.observe({ type: 'long-animation-frame' });
})()`;
const STOP = `(() => {
  const frames = globalThis.frames_;
  frames.stop = true;
  for (const entry of frames.observer.takeRecords()) frames.slow.push(entry.duration);
  frames.observer.disconnect();
  return { times: frames.times, slow: frames.slow };
})()`;

/** Measures the frames while `act` runs. */
export async function measureFrames(page: Page, act: () => Promise<unknown>): Promise<Frames> {
  const endTrace = await startTrace(page);
  await page.evaluate(START);
  await act();
  const { times, slow } = (await page.evaluate(STOP)) as { times: number[]; slow: number[] };
  const events = await endTrace();
  const intervals = times
    .slice(1)
    .map((time, i) => time - (times[i] ?? 0))
    .sort((a, b) => a - b);
  const at = (share: number) => intervals[Math.floor((intervals.length - 1) * share)] ?? Number.NaN;
  return {
    count: intervals.length,
    median: at(0.5),
    p99: at(0.99),
    longest: at(1),
    slow: slow.length,
    slowest: Math.max(0, ...slow),
    ...workOf(events),
  };
}

/** Starts a trace of the browser's tasks; the result ends it. */
async function startTrace(page: Page): Promise<() => Promise<TraceEvent[]>> {
  const session = await page.context().browser()?.newBrowserCDPSession();
  if (!session) throw new Error('the browser has ended');
  const events: TraceEvent[] = [];
  session.on('Tracing.dataCollected', ({ value }) => events.push(...(value as unknown as TraceEvent[])));
  await session.send('Tracing.start', {
    transferMode: 'ReportEvents',
    traceConfig: { includedCategories: ['toplevel', 'devtools.timeline'] },
  });
  return async () => {
    const complete = new Promise((resolve) => session.once('Tracing.tracingComplete', resolve));
    await session.send('Tracing.end');
    await complete;
    await session.detach();
    return events;
  };
}

/** Returns the processor time that the thread which draws the frames needed, by its tasks and by its frames. */
function workOf(events: readonly TraceEvent[]): Pick<Frames, 'busiest' | 'work' | 'overworked'> {
  const drawn = events.find(({ name }) => name === 'FireAnimationFrame');
  const own = events.filter(({ pid, tid }) => pid === drawn?.pid && tid === drawn.tid);
  const tasks = own.filter(({ name }) => name.endsWith('::RunTask')).sort((a, b) => a.ts - b.ts);
  const drawings = own.filter(({ name }) => name === 'FireAnimationFrame').map(({ ts }) => ts);
  drawings.sort((a, b) => a - b);
  const sums: number[] = [];
  let next = 0;
  let sum = 0;
  for (const { ts, dur = 0, tdur = 0 } of tasks) {
    // Several callbacks of one frame are in one task.
    let isFrame = false;
    for (; (drawings[next] ?? Number.POSITIVE_INFINITY) <= ts + dur; next++) isFrame = true;
    if (isFrame) {
      sums.push(sum);
      sum = 0;
    }
    sum += tdur / 1000;
  }
  return {
    busiest: Math.max(0, ...tasks.map(({ tdur = 0 }) => tdur / 1000)),
    work: Math.max(0, ...sums),
    overworked: sums.filter((one) => one > MAX_FRAME_MS).length,
  };
}
