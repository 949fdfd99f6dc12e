import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';

const EVERY_ROOM = ['*'];

/** Each room (a folder of src/) and the rooms that it may import from; see docs/architecture.md. */
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  lib: [],
  kernel: ['lib'],
  nft: ['lib', 'kernel'],
  kube: ['lib'],
  service: ['lib', 'kube'],
  policy: ['lib', 'kube', 'nft', 'kernel'],
  egress: ['lib', 'kernel', 'kube', 'nft'],
  failover: ['lib', 'kernel', 'service'],
  dataplane: ['lib', 'kernel', 'nft', 'service', 'failover'],
  proxy: ['lib', 'kernel', 'kube', 'service', 'failover', 'dataplane'],
  network: ['lib', 'kernel', 'nft', 'kube'],
  runtime: ['lib', 'kernel', 'kube'],
  dns: ['lib', 'kernel', 'kube'],
  loadbalancer: ['lib', 'kernel', 'kube'],
  gateway: ['lib', 'kernel', 'kube', 'service'],
  flows: ['lib', 'kernel', 'service', 'policy', 'dataplane', 'network', 'dns'],
  modes: ['lib', 'kernel', 'nft', 'service', 'dataplane'],
  observe: [
    ...['lib', 'kernel', 'kube', 'service', 'policy', 'dataplane', 'network', 'dns', 'loadbalancer'],
    ...['egress', 'gateway'],
  ],
  trace: ['lib', 'kernel', 'nft', 'policy', 'dns', 'observe'],
  conformance: ['lib', 'kernel', 'kube', 'service', 'policy', 'dataplane', 'observe'],
  apiserver: ['lib', 'kube'],
  controllers: ['lib', 'kube', 'policy', 'loadbalancer', 'gateway'],
  agent: [
    ...['lib', 'kernel', 'nft', 'kube', 'service', 'policy', 'failover', 'dataplane', 'proxy', 'network'],
    ...['runtime', 'dns', 'loadbalancer', 'gateway', 'flows', 'controllers', 'observe', 'modes', 'trace'],
    ...['egress', 'conformance'],
  ],
  cluster: EVERY_ROOM,
  fixture: ['lib', 'kube', 'apiserver', 'cluster'],
  learn: EVERY_ROOM,
  ui: EVERY_ROOM,
  cli: EVERY_ROOM,
};

/** The last rooms, in order: none imports from a later one, and all but `fixture` may import from every earlier room. */
const UPPER_ROOMS = ['cluster', 'fixture', 'learn', 'ui', 'cli'];

const MODES = ['nftables', 'iptables', 'userspace', 'ipvs', 'ebpf'];

const root = resolve(import.meta.dirname, '..');
const source = join(root, 'src');

test('each file imports only what its room may import', () => {
  const violations = [...importsOf(source)].flatMap(({ file, imported }) => {
    const reason = violationOf(file.split('/'), imported.split('/'));
    return reason === null ? [] : [`src/${file} imports src/${imported}: ${reason}`];
  });
  assert.deepEqual(violations, []);
});

test('the folders of src/ are the rooms in the architecture document', () => {
  const folders = readdirSync(source, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);
  const document = readFileSync(join(root, 'docs', 'architecture.md'), 'utf8');
  const rows = [...document.matchAll(/^\| `src\/([a-z]+)\//gm)].map(([, name = '']) => name);
  assert.deepEqual([...new Set(rows)].sort(), [...folders].sort());
  const unknown = Object.keys(ROOMS).filter((room) => !folders.includes(room));
  assert.deepEqual(unknown, [], 'rooms without a folder');
});

test('the order of rooms in the architecture document is that of their imports', () => {
  const document = readFileSync(join(root, 'docs', 'architecture.md'), 'utf8');
  const [, order = ''] = /in this order, .*: `(lib → [^`]*)`/.exec(document) ?? [];
  const places = new Map(
    order.split(' → ').flatMap((group, i) => group.split(', ').map((room) => [room, i])),
  );
  assert.deepEqual([...places.keys()].sort(), Object.keys(ROOMS).sort());
  const place = (room: string) => places.get(room) ?? -1;
  const wrong = Object.entries(ROOMS).flatMap(([room, others]) =>
    others
      .filter((other) => other !== '*' && place(other) >= place(room))
      .map((other) => `${other} is not before ${room}`),
  );
  assert.deepEqual(wrong, []);
});

test('no imports form a circle, those of types included', () => {
  const imports = new Map<string, Set<string>>();
  for (const { file, imported } of importsOf(source)) {
    const others = imports.get(file) ?? new Set();
    imports.set(file, others.add(imported));
  }
  const circles = connectedComponents(imports)
    .filter((files) => files.length > 1 || imports.get(files[0] ?? '')?.has(files[0] ?? ''))
    .map(
      (files) => `${shortestCircle(imports, new Set(files)).join(' → ')} (files in circles: ${files.length})`,
    );
  assert.deepEqual(circles, [], 'put what both files need into the lower one, or into a file of its own');
});

test('circles are found, and the shortest of each is named', () => {
  const graph = (edges: Readonly<Record<string, string>>) =>
    new Map(Object.entries(edges).map(([file, others]) => [file, new Set(others.split(' '))]));
  assert.deepEqual(connectedComponents(graph({ a: 'b c', b: 'c', c: 'd' })).filter(isLong), []);
  const found = graph({ a: 'b', b: 'c', c: 'a d', d: 'c e', e: 'f', f: 'e' });
  const components = connectedComponents(found).filter(isLong);
  assert.deepEqual(components.map((files) => files.sort().join('')).sort(), ['abcd', 'ef']);
  assert.deepEqual(shortestCircle(found, new Set(['a', 'b', 'c', 'd'])), ['c', 'd', 'c']);
});

const isLong = (files: readonly string[]): boolean => files.length > 1;

/** Returns the strongly connected components of a graph (Tarjan's algorithm). */
function connectedComponents(graph: ReadonlyMap<string, ReadonlySet<string>>): string[][] {
  const numbers = new Map<string, number>();
  const lowest = new Map<string, number>();
  const open: string[] = [];
  const isOpen = new Set<string>();
  const components: string[][] = [];
  const visit = (node: string): number => {
    const number = numbers.size;
    numbers.set(node, number);
    lowest.set(node, number);
    open.push(node);
    isOpen.add(node);
    for (const next of graph.get(node) ?? []) {
      const found = numbers.has(next) ? (isOpen.has(next) ? numbers.get(next) : undefined) : visit(next);
      lowest.set(node, Math.min(lowest.get(node) ?? number, found ?? number));
    }
    const low = lowest.get(node) ?? number;
    if (low === number) {
      const component = open.splice(open.indexOf(node));
      for (const one of component) isOpen.delete(one);
      components.push(component);
    }
    return low;
  };
  for (const node of graph.keys()) if (!numbers.has(node)) visit(node);
  return components;
}

/** Returns the shortest path from a member of a component back to itself. */
function shortestCircle(
  graph: ReadonlyMap<string, ReadonlySet<string>>,
  component: ReadonlySet<string>,
): string[] {
  let shortest: string[] | null = null;
  for (const start of component) {
    const paths: string[][] = [[start]];
    const seen = new Set<string>();
    for (const path of paths) {
      if (shortest !== null && path.length + 1 >= shortest.length) break;
      const nexts = [...(graph.get(path.at(-1) ?? '') ?? [])].filter((next) => component.has(next));
      if (nexts.includes(start)) {
        shortest = [...path, start];
        break;
      }
      for (const next of nexts.filter((one) => !seen.has(one))) {
        seen.add(next);
        paths.push([...path, next]);
      }
    }
  }
  return shortest ?? [];
}

/** Returns the reason why one file must not import another; null if it may. */
function violationOf(from: readonly string[], to: readonly string[]): string | null {
  const [room = '', mode = ''] = from;
  const [target = '', targetMode = ''] = to;
  const allowed = ROOMS[room];
  if (!allowed) return `${room} is not a room: add it to ROOMS and to docs/architecture.md`;
  if (target !== room && !allowed.includes(target) && allowed !== EVERY_ROOM)
    return `room ${room} must not import from room ${target}`;
  if (UPPER_ROOMS.indexOf(target) > UPPER_ROOMS.indexOf(room) && UPPER_ROOMS.includes(room))
    return `room ${room} must not import from room ${target}`;
  if (room !== 'dataplane' || target !== 'dataplane' || mode === targetMode) return null;
  const isSharedCode = from.length === 2 || mode === 'testing';
  if (isSharedCode || !MODES.includes(targetMode)) return null;
  return `dataplane/${mode} must not import from mode ${targetMode}`;
}

/** Yields each import of a file below `folder` that stays below it; paths relative to it. */
function* importsOf(folder: string): Generator<{ readonly file: string; readonly imported: string }> {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile() || !/\.tsx?$/.test(entry.name)) continue;
    const file = join(entry.parentPath, entry.name);
    const text = readFileSync(file, 'utf8');
    for (const match of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
      const imported = relative(folder, resolve(dirname(file), match[1] ?? ''));
      if (!imported.startsWith('..')) yield { file: relative(folder, file), imported };
    }
  }
}
