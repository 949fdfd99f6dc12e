import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Returns a container that runs a shell script. */
export const shell = (script: string, more: object = {}) => ({
  name: 'main',
  image: 'host',
  command: ['sh', '-c', script],
  ...more,
});

/** Returns a container that runs a Node.js script. */
export const server = (script: string, more: object = {}) => ({
  name: 'main',
  image: 'node',
  command: ['test-node', '-e', script],
  ...more,
});

/** A folder of the node that containers see as /out, for their results. */
export interface OutFolder {
  readonly path: string;
  make(): void;
  /** Containers that have the folder mounted. */
  shell(script: string, more?: object): object;
  server(script: string, more?: object): object;
  /** Returns the spec of a pod with such containers. */
  pod(containers: object[], more?: object): object;
  /** Returns the contents of a file; empty if it does not exist yet. */
  written(file: string): string;
  /** Resolves to the contents of a file once they match. */
  untilWritten(file: string, what: RegExp): Promise<string>;
}

/** `stateDir`: returns the node's state folder, once the node exists. */
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

/** Returns the first answer of a server that is about to listen. */
export async function firstAnswer(url: string, options: RequestInit = {}): Promise<Response> {
  for (const end = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    try {
      return await fetch(url, options);
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}
