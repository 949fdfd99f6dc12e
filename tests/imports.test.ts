import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';

/** Each room and the rooms that it may import from; see docs/architecture.md. */
const ROOMS: Record<string, readonly string[]> = {
  lib: [],
  kernel: ['lib'],
  kube: ['lib'],
  service: ['lib', 'kube'],
  dataplane: ['lib', 'kernel', 'service'],
  network: ['lib', 'kernel', 'kube'],
  runtime: ['lib', 'kernel', 'kube'],
  dns: ['lib', 'kernel', 'kube'],
  loadbalancer: ['lib', 'kernel', 'kube'],
  observe: ['lib', 'kernel', 'kube', 'service', 'dataplane', 'network', 'dns', 'loadbalancer'],
  conformance: ['lib', 'kernel', 'kube', 'service', 'dataplane', 'observe'],
  apiserver: ['lib', 'kube'],
  controllers: ['lib', 'kube'],
  agent: [
    'lib',
    'kernel',
    'kube',
    'service',
    'dataplane',
    'network',
    'runtime',
    'dns',
    'loadbalancer',
    'observe',
  ],
  cli: ['*'],
};

/** The dataplanes know nothing of each other, but for the floor that others stand on. */
const DATAPLANES: Record<string, readonly string[]> = {
  ebpf: ['nftables', 'conntrack', 'failover'],
  ipvs: ['nftables', 'conntrack'],
  userspace: ['failover'],
};

const source = resolve(import.meta.dirname, '..', 'src');

for (const [file, imported] of importsOf(source)) {
  const from = relative(source, file).split('/');
  const to = relative(source, imported).split('/');
  const [room = '', part = ''] = from;
  const [target = '', targetPart = ''] = to;
  test(`${from.join('/')} may import ${to.join('/')}`, () => {
    assert.ok(room in ROOMS, `${room} is not a room: add it to ROOMS with what it may import`);
    const allowed = ROOMS[room] ?? [];
    assert.ok(
      target === room || allowed.includes(target) || allowed.includes('*'),
      `room ${room} must not import from room ${target}`,
    );
    if (
      room === 'dataplane' &&
      target === 'dataplane' &&
      from.length > 2 &&
      to.length > 2 &&
      part !== targetPart
    ) {
      assert.ok(
        (DATAPLANES[part] ?? []).includes(targetPart) || part === 'testing' || targetPart === 'testing',
        `dataplane ${part} must not import from dataplane ${targetPart}`,
      );
    }
  });
}

function* importsOf(folder: string): Generator<[file: string, imported: string]> {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.ts')) continue;
    const file = join(entry.parentPath, entry.name);
    const text = readFileSync(file, 'utf8');
    for (const match of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
      const imported = resolve(dirname(file), match[1] ?? '');
      if (imported.startsWith(source)) yield [file, imported];
    }
  }
}
