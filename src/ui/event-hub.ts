import type { ServerResponse } from 'node:http';
import type { PageEvent } from './view.ts';

/** The open event streams of pages (server-sent events, WHATWG HTML section 9.2). */
export interface EventHub {
  readonly size: number;
  /** Answers a request with a stream that begins with `first`. */
  add(response: ServerResponse, first: readonly PageEvent[], onClose: () => void): void;
  send(event: PageEvent): void;
  close(): void;
}

/** A page that reads slowly misses ticks beyond this number of buffered bytes. */
const MAX_TICK_BACKLOG = 1 << 20;
/** A page that does not read at all is disconnected; it gets all objects again when it reconnects. */
const MAX_BACKLOG = 16 << 20;
/** How soon a page reconnects, in milliseconds. */
const RETRY_MS = 1000;

export function createEventHub(): EventHub {
  const streams = new Set<ServerResponse>();
  const write = (stream: ServerResponse, text: string) => {
    if (stream.writableLength > MAX_BACKLOG) stream.destroy();
    else stream.write(text);
  };
  return {
    get size() {
      return streams.size;
    },
    add(response, first, onClose) {
      response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
      response.write(`retry: ${RETRY_MS}\n\n`);
      for (const event of first) write(response, render(event));
      streams.add(response);
      response.on('close', () => {
        streams.delete(response);
        onClose();
      });
    },
    send(event) {
      if (streams.size === 0) return;
      const text = render(event);
      for (const stream of streams) {
        if (event.type === 'tick' && stream.writableLength > MAX_TICK_BACKLOG) continue;
        write(stream, text);
      }
    },
    close() {
      for (const stream of streams) stream.end();
    },
  };
}

const render = (event: PageEvent): string => `data: ${JSON.stringify(event)}\n\n`;
