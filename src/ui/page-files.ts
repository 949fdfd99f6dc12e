import { readFileSync } from 'node:fs';
import { FairleadError } from '../lib/errors.ts';

/** A file of the page. */
export interface PageFile {
  readonly type: string;
  readonly content: Buffer;
}

/** The page's files by path; tools/build.mjs writes them to dist/. */
const FILES: Readonly<Record<string, { readonly file: string; readonly type: string }>> = {
  '/': { file: 'page.html', type: 'text/html; charset=utf-8' },
  '/page.js': { file: 'page.js', type: 'text/javascript; charset=utf-8' },
  '/page.terminal.js': { file: 'page.terminal.js', type: 'text/javascript; charset=utf-8' },
  '/page.css': { file: 'page.css', type: 'text/css; charset=utf-8' },
  '/page.svg': { file: 'page.svg', type: 'image/svg+xml' },
};

/** Reads the page's files. Throws FairleadError if they were not built. */
export function readPageFiles(): ReadonlyMap<string, PageFile> {
  // From the bundle's folder, or from the sources.
  const folder = new URL(import.meta.url.endsWith('.ts') ? '../../dist/' : './', import.meta.url);
  return new Map(
    Object.entries(FILES).map(([path, { file, type }]) => {
      try {
        return [path, { type, content: readFileSync(new URL(file, folder)) }];
      } catch (error) {
        throw new FairleadError(`the page's file ${file} is missing`, {
          op: 'fairlead ui',
          code: 'ENOENT',
          hint: 'node tools/build.mjs',
          cause: error,
        });
      }
    }),
  );
}
