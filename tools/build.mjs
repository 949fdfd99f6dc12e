// Bundles src/ into dist/ with esbuild: one entry, one chunk per command, so that a command loads only the
// code that it runs, the entry of a thread, and the page of `fairlead ui`. May run while clusters run
// from dist/: files are replaced, and chunks of earlier builds stay for a day, since running processes load
// theirs when they first need them.
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const DAY_MS = 24 * 60 * 60 * 1000;
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const outdir = join(root, 'dist');
// An ES module's import of node:http reads all its exports, and so loads its fetch and WebSocket: 55 ms of
// processor time in every process. As a property of the module object, only used exports are read.
const lazyHttp = {
  name: 'lazy-http',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?http$/ }, ({ kind }) =>
      kind === 'import-statement' ? { path: 'node:http', namespace: 'lazy-http' } : null,
    );
    onLoad({ filter: /.*/, namespace: 'lazy-http' }, () => ({
      contents: "module.exports = process.getBuiltinModule('node:http');",
    }));
  },
};
const common = {
  outdir,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node24',
  outExtension: { '.js': '.mjs' },
  external: ['koffi'],
  plugins: [lazyHttp],
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
  },
  sourcemap: true,
  write: false,
  logLevel: 'warning',
};
const page = {
  outdir,
  bundle: true,
  format: 'esm',
  target: ['chrome123', 'firefox120', 'safari17.5'],
  minify: true,
  write: false,
  logLevel: 'warning',
};
const built = await Promise.all([
  build({
    ...common,
    entryPoints: {
      fairlead: join(root, 'src/cli/main.ts'),
      'yaml-worker': join(root, 'src/apiserver/yaml/yaml-worker.ts'),
    },
    splitting: true,
  }),
  // For browsers.
  build({
    ...page,
    entryPoints: ['main.tsx', 'page.css', 'page.html', 'page.svg'].map((file) => ({
      in: join(root, 'src/ui/page', file),
      out: 'page',
    })),
    loader: { '.html': 'copy', '.svg': 'copy' },
    jsx: 'automatic',
    jsxImportSource: 'preact',
  }),
  // The terminal, which the page loads when it is first needed. Its library takes `document` from styled-document.ts.
  build({
    ...page,
    entryPoints: [{ in: join(root, 'src/ui/page/terminal.ts'), out: 'page.terminal' }],
    loader: { '.css': 'text' },
    define: { document: 'styledDocument', 'window.document': 'styledDocument' },
    inject: [join(root, 'src/ui/page/styled-document.ts')],
  }),
]);
const outputFiles = built.flatMap((one) => one.outputFiles);
mkdirSync(outdir, { recursive: true });
// The entry last: its time shows whether the bundle is up to date, and it names chunks that must exist.
const isEntry = (file) => (basename(file.path) === 'fairlead.mjs' ? 1 : 0);
for (const file of outputFiles.sort((a, b) => isEntry(a) - isEntry(b))) {
  const fresh = `${file.path}.${process.pid}`;
  writeFileSync(fresh, file.contents);
  renameSync(fresh, file.path);
}
// Compiled code of earlier builds is of no use.
rmSync(join(outdir, 'compile-cache'), { recursive: true, force: true });
const current = new Set(outputFiles.map((file) => basename(file.path)));
for (const entry of readdirSync(outdir)) {
  const file = join(outdir, entry);
  // Another build may have renamed it meanwhile.
  const age = Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY);
  // Folders are others': images, compiled code.
  if (entry.includes('.mjs') && !current.has(entry) && age > DAY_MS) rmSync(file, { force: true });
}
