// Bundles src/ into dist/ with esbuild: one entry, one chunk per command, so that a command loads only the
// code that it runs, some commands as one file each, the entries of threads, the library `fairlead/testing`, and the page
// of `fairlead ui`. May run while clusters run from dist/: files are replaced, and chunks of earlier builds stay for a day,
// since running processes load theirs when they first need them.
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { IN_ONE_FILE } from '../src/cli/one-file-commands.ts';
import { freshPath } from '../src/kernel/replace-file.ts';

// A package has only the files of this build.
const KEPT_MS = process.env.npm_lifecycle_event === 'prepack' ? 0 : 24 * 60 * 60 * 1000;
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const outdir = join(root, 'dist');
// An ES module's import of a module of Node.js loads it, and reads all its exports: with node:http its fetch and
// WebSocket, 55 ms of processor time in every process. These modules, and packages that most starts do not need, become
// objects whose properties load the module when one of them is first read.
const LAZY_PACKAGES = ['@marcbachmann/cel-js', 'js-yaml', 'tar-stream', 'ws', 'yaml'];
/** Parts of packages that are loaded with them and never used, as [importer, path]. */
const UNUSED_PARTS = [
  [/\/prom-client\//, /^\.\/lib\/(pushgateway|cluster)$|^@opentelemetry\/api$/],
  // It writes to a stream of ours (src/cli/logging.ts).
  // It asks for its callers for a transport only: V8 then finds the lines of the whole bundle, 5 ms.
  [/\/pino\//, /^\.\/(lib\/)?(transport|caller)$|^(sonic-boom|on-exit-leak-free|worker_threads)$/],
];
/** A function of a package, which is loaded when it is first called: it needs two modules of Node.js. */
const LATE_FUNCTION = 'prom-client/lib/defaultMetrics';
const lazy = {
  name: 'lazy',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:/, namespace: 'file' }, ({ path, kind }) =>
      kind === 'import-statement' ? { path, namespace: 'lazy' } : null,
    );
    onResolve({ filter: /^[^.]/, namespace: 'file' }, ({ path, kind, importer }) =>
      kind === 'import-statement' && LAZY_PACKAGES.includes(path) && importer.startsWith(join(root, 'src'))
        ? { path, namespace: 'lazy' }
        : null,
    );
    const namesOf = async (path) =>
      Object.keys(await import(path)).filter((name) => !['default', 'module.exports'].includes(name));
    // Every importer's names refer to this one import: each import of a CommonJS module copies its properties.
    onLoad({ filter: /.*/, namespace: 'lazy' }, async ({ path }) => ({
      contents: `export { ${await namesOf(path)} } from '${path}';`,
    }));
    onResolve({ filter: /.*/, namespace: 'lazy' }, ({ path }) => ({ path, namespace: 'lazy-object' }));
    onLoad({ filter: /.*/, namespace: 'lazy-object' }, async ({ path }) => {
      const load = path.startsWith('node:') ? `process.getBuiltinModule('${path}')` : `require('${path}')`;
      const contents = `for (const name of ${JSON.stringify(await namesOf(path))})
        Object.defineProperty(exports, name, {
          enumerable: true,
          configurable: true,
          get() {
            const value = ${load}[name];
            Object.defineProperty(exports, name, { value });
            return value;
          },
        });`;
      return { contents, resolveDir: root };
    });
    onResolve({ filter: /.*/ }, ({ path, kind, importer }) =>
      kind === 'require-call' && UNUSED_PARTS.some(([from, part]) => from.test(importer) && part.test(path))
        ? { path, namespace: 'unused' }
        : null,
    );
    onResolve({ filter: /^\.\/lib\/defaultMetrics$/ }, ({ path, resolveDir }) =>
      join(resolveDir, path).endsWith(`/${LATE_FUNCTION}`)
        ? { path: LATE_FUNCTION, namespace: 'late' }
        : null,
    );
    onLoad({ filter: /.*/, namespace: 'late' }, ({ path }) => ({
      contents: `module.exports = (...given) => require(${JSON.stringify(path)})(...given);`,
      resolveDir: root,
    }));
    onLoad({ filter: /.*/, namespace: 'unused' }, () => ({ contents: 'module.exports = function () {};' }));
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
  plugins: [lazy],
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
  },
  sourcemap: true,
  write: false,
  logLevel: 'warning',
};
/** A function in the form of a CommonJS module, which src/cli/kept-code.ts runs. */
const wholeFile = {
  format: 'cjs',
  outExtension: { '.js': '.cjs' },
  charset: 'ascii',
  define: {
    'import.meta.url': '__url',
    'import.meta.filename': '__filename',
    'import.meta.dirname': '__dirname',
  },
  banner: {
    js: "(function (exports, require, module, __filename, __dirname) { const __url = require('node:url').pathToFileURL(__filename).href;",
  },
  footer: { js: '})' },
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
/** Replaces the table of commands by one that has a single command. */
const onlyCommand = (name) => ({
  name: 'only-command',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^\.\/commands\.ts$/ }, () => ({ path: name, namespace: 'only-command' }));
    onLoad({ filter: /.*/, namespace: 'only-command' }, () => ({
      contents: `import { command } from './${name}.ts';
        export const COMMANDS = [{ name: '${name}', summary: command.summary, load: async () => ({ command }) }];`,
      resolveDir: join(root, 'src/cli'),
      loader: 'ts',
    }));
  },
});
const built = await Promise.all([
  build({
    ...common,
    entryPoints: {
      main: join(root, 'src/cli/main.ts'),
      'yaml-worker': join(root, 'src/apiserver/yaml/yaml-worker.ts'),
      'announcer-worker': join(root, 'src/agent/announcer-worker.ts'),
      'file-worker': join(root, 'src/runtime/files/file-worker.ts'),
    },
    splitting: true,
  }),
  build({
    ...common,
    entryPoints: { fairlead: join(root, 'src/cli/fairlead.ts') },
    external: ['./main.mjs', './main.ts'],
  }),
  // The library "fairlead/testing": one file, which programs of users load.
  build({ ...common, entryPoints: { testing: join(root, 'src/fixture/testing.ts') } }),
  ...Object.keys(IN_ONE_FILE).map((name) =>
    build({
      ...common,
      ...wholeFile,
      plugins: [onlyCommand(name), lazy],
      entryPoints: { [name]: join(root, 'src/cli/main.ts') },
    }),
  ),
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
outputFiles.push({ path: join(outdir, 'testing.d.ts'), contents: testingTypes() });
mkdirSync(outdir, { recursive: true });
/** Returns the types of "fairlead/testing": a file without imports and code, and the function that it describes. */
function testingTypes() {
  const types = readFileSync(join(root, 'src/fixture/api.ts'), 'utf8');
  return `${types}\nexport declare const startCluster: StartCluster;\n`;
}
// The entry last: its time shows whether the bundle is up to date, and it names chunks that must exist.
const isEntry = (file) => (basename(file.path) === 'fairlead.mjs' ? 1 : 0);
for (const file of outputFiles.sort((a, b) => isEntry(a) - isEntry(b))) {
  const fresh = freshPath(file.path);
  writeFileSync(fresh, file.contents);
  renameSync(fresh, file.path);
}
// Compiled code of earlier builds is never read again.
rmSync(join(outdir, 'compile-cache'), { recursive: true, force: true });
const current = new Set(outputFiles.map((file) => basename(file.path)));
for (const entry of readdirSync(outdir)) {
  const file = join(outdir, entry);
  // Another build may have renamed it meanwhile.
  const age = Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY);
  // Folders are others': images, compiled code.
  if (/\.[cm]js/.test(entry) && !current.has(entry) && age > KEPT_MS) rmSync(file, { force: true });
}
