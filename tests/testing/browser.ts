import { accessSync, constants } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';

const PROGRAMS = ['/usr/bin/chromium', '/usr/bin/chromium-browser'];

/** Returns the path of Chromium; null: it is not installed. */
export function findChromium(): string | null {
  return PROGRAMS.find(isExecutable) ?? null;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Nothing of the browser itself asks the network for anything, and no name resolves. */
const QUIET = [
  ...['--disable-background-networking', '--disable-component-update', '--disable-domain-reliability'],
  ...[
    '--disable-sync',
    '--no-first-run',
    '--no-default-browser-check',
    '--no-proxy-server',
    '--disable-breakpad',
  ],
  '--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

/** Starts Chromium without a window. Its sandbox needs a user other than root. */
export async function startBrowser(program: string): Promise<Browser> {
  return await chromium.launch({ executablePath: program, chromiumSandbox: false, args: QUIET });
}
