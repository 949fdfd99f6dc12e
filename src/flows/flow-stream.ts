import type { ServerResponse } from 'node:http';
import type { FlowsEntry } from './flow-line.ts';
import type { FlowWatch } from './flow-watch.ts';

/** The maximum number of buffered bytes for a reader. */
const MAX_WAITING = 1 << 20;

/** The request of a reader of flows. */
export interface FlowsRequest {
  /** Recorded entries since this time come first (ms since 1970); null: none. */
  readonly since: number | null;
  /** New entries follow until the reader disconnects. */
  readonly follow: boolean;
}

/** Renders the query of a request for flows: "since=MS&follow=false". */
export function flowsQuery({ since, follow }: FlowsRequest): string {
  return new URLSearchParams({
    ...(since === null ? {} : { since: String(since) }),
    follow: String(follow),
  }).toString();
}

/** Reads the query of a request for flows. */
export function readFlowsRequest(query: URLSearchParams): FlowsRequest {
  const since = query.get('since');
  return { since: since === null ? null : Number(since), follow: query.get('follow') !== 'false' };
}

/** Writes flows to a response, one JSON object per line. */
export function streamFlows(
  response: ServerResponse,
  flows: FlowWatch,
  { since, follow }: FlowsRequest,
): void {
  let lost = 0;
  const write = (entry: FlowsEntry) => response.write(`${JSON.stringify(entry)}\n`);
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  if (since !== null) {
    const recorded = flows.recorded();
    if (recorded.since === null || recorded.since > since) write(notRecorded(recorded.since));
    const first = recorded.entries.findIndex(
      (entry) => entry.type !== 'notice' && Date.parse(entry.time) >= since,
    );
    if (first >= 0) for (const entry of recorded.entries.slice(first)) write(entry);
  }
  if (!follow) {
    response.end();
    return;
  }
  /** Entries before all sources are open; null: they are. The headers tell the reader that it misses nothing from now on. */
  let early: FlowsEntry[] | null = [];
  const watch = flows.watch((entry) => {
    if (early) {
      early.push(entry);
      return;
    }
    if (response.writableLength > MAX_WAITING) {
      lost++;
      return;
    }
    if (lost > 0)
      write({ type: 'notice', text: `${lost} events were dropped because the output is too slow` });
    lost = 0;
    write(entry);
  });
  watch.ready.then(() => {
    response.flushHeaders();
    for (const entry of early ?? []) write(entry);
    early = null;
  });
  response.on('close', () => watch.close());
}

const notRecorded = (since: number | null): FlowsEntry => ({
  type: 'notice',
  text:
    since === null
      ? 'nothing was recorded: flows are recorded while "fairlead flows" runs'
      : `recorded since ${new Date(since).toISOString()} only: flows are recorded while "fairlead flows" runs`,
});
