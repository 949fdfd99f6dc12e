import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A container that runs a shell script. */
export const shell = (script: string, more: object = {}) => ({
  name: 'main',
  image: 'host',
  command: ['sh', '-c', script],
  ...more,
});

/** A container that runs a script of Node's. */
export const server = (script: string, more: object = {}) => ({
  name: 'main',
  image: 'node',
  command: ['test-node', '-e', script],
  ...more,
});

/** A folder of the node that containers see as /out, and write into what they have seen. */
export interface OutFolder {
  readonly path: string;
  make(): void;
  /** As the containers above. */
  shell(script: string, more?: object): object;
  server(script: string, more?: object): object;
  /** The spec of a pod with such containers. */
  pod(containers: object[], more?: object): object;
  /** What was written into a file; empty where there is none yet. */
  written(file: string): string;
  /** Resolves to what was written once it looks like that. */
  untilWritten(file: string, what: RegExp): Promise<string>;
}

/** `stateDir`: of the node, once it is there. */
export function outFolder(stateDir: () => string): OutFolder {
  const mounted = { volumeMounts: [{ name: 'out', mountPath: '/out' }] };
  const folder: OutFolder = {
    get path() {
      return join(stateDir(), 'out');
    },
    make: () => mkdirSync(folder.path),
    shell: (script, more = {}) => shell(script, { ...mounted, ...more }),
    server: (script, more = {}) => server(script, { ...mounted, ...more }),
    pod: (containers, more = {}) => ({
      containers,
      volumes: [{ name: 'out', hostPath: { path: folder.path } }],
      ...more,
    }),
    written(file) {
      try {
        return readFileSync(join(folder.path, file), 'utf8');
      } catch {
        // Not written yet.
        return '';
      }
    },
    async untilWritten(file, what) {
      for (const end = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
        const text = folder.written(file);
        if (what.test(text)) return text;
        if (Date.now() > end) throw new Error(`waited 60 s for ${what} in ${file}: ${JSON.stringify(text)}`);
      }
    },
  };
  return folder;
}

/** The answer of a server that is about to listen. */
export async function firstAnswer(url: string, options: RequestInit = {}): Promise<Response> {
  for (const end = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    try {
      return await fetch(url, options);
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}
