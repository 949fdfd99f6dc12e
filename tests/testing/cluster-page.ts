import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { get } from 'node:http';
import { createRequire } from 'node:module';
import type { BrowserContext, Page } from 'playwright-core';
import { startBrowser } from './browser.ts';
import { type Cluster, spawnFairlead } from './cluster.ts';

const PATIENCE_MS = 60_000;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The page of a cluster in a real browser. */
export interface ClusterPage {
  /** The command that serves the page. */
  readonly command: ChildProcess;
  /** The address of the page with its token. */
  readonly url: string;
  readonly context: BrowserContext;
  readonly page: Page;
  /** Errors and warnings of the page, those of its content security policy too. */
  readonly problems: readonly string[];
  /** Returns what axe finds in the page as it is now. */
  violations(): Promise<string[]>;
  /** Returns the addresses of other servers that the page asked. */
  foreignRequests(): string[];
  /** Measures the files that the page has loaded, as they are sent. */
  wireSize(): Promise<{ readonly files: readonly string[]; readonly bytes: number }>;
  close(): Promise<void>;
}

/** Runs `fairlead ui` and opens a browser, which has no network but that of the run. */
export async function openClusterPage(cluster: Cluster, chromium: string): Promise<ClusterPage> {
  const command = spawnFairlead(cluster.stateRoot, ['ui', '--name', cluster.name]);
  const [line] = await once(command.stdout ?? command, 'data');
  const url = String(line).trim();
  const browser = await startBrowser(chromium);
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const requests: string[] = [];
  const problems: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  page.on('websocket', (socket) => requests.push(socket.url().replace(/^ws:/, 'http:')));
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') problems.push(message.text());
  });
  return {
    command,
    url,
    context,
    page,
    problems,
    async violations() {
      await page.evaluate(AXE);
      return (await page.evaluate(
        `axe.run().then(({violations}) => violations.map(({id, nodes}) => id + ': ' + nodes.map(({html}) => html).join(' ')))`,
      )) as string[];
    },
    foreignRequests: () => requests.filter((one) => !one.startsWith(url)),
    async wireSize() {
      const all = [...new Set(requests.map((one) => one.replace(/#.*/, '')))];
      const files = all.filter((one) => !one.includes('/api/'));
      const sizes = await Promise.all(files.map(sentBytes));
      return { files, bytes: sizes.reduce((sum, size) => sum + size, 0) };
    },
    async close() {
      await browser.close();
      command.kill();
    },
  };
}

/** Asks for a file as browsers do, and returns the number of bytes that are sent. */
async function sentBytes(url: string): Promise<number> {
  const call = get(url, { headers: { 'accept-encoding': 'gzip, deflate, br' } });
  const [response] = await once(call, 'response');
  return Buffer.concat(await response.toArray()).length;
}
