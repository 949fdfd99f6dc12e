import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, test } from 'node:test';
import { FairleadError } from '../lib/errors.ts';
import { findControlPlane, programNames } from './control-plane-programs.ts';

let folder: string | null = null;

afterEach(() => {
  if (folder !== null) rmSync(folder, { recursive: true });
  folder = null;
});

/** The output of a program; null: the file is not executable. */
type Programs = Readonly<Record<string, string | null>>;

function assets(programs: Programs): string {
  folder = mkdtempSync(join(tmpdir(), 'fairlead-assets-'));
  for (const [name, text] of Object.entries(programs))
    writeFileSync(join(folder, name), `#!/bin/sh\necho '${text}'\n`, { mode: text === null ? 0o644 : 0o755 });
  return folder;
}

const etcd = 'etcd Version: 3.6.8';
const kubernetes = (version: string) => `Kubernetes v${version}`;
const COMPLETE = {
  etcd,
  'kube-apiserver': kubernetes('1.36.0'),
  'kube-controller-manager': kubernetes('1.36.2'),
  'kube-scheduler': kubernetes('1.35.4'),
};

describe('the programs of a real control plane', () => {
  const found: readonly (readonly [string, Programs, string, readonly string[]])[] = [
    ['all', COMPLETE, '1.36.0', Object.keys(COMPLETE)],
    [
      'those of envtest',
      { etcd, 'kube-apiserver': kubernetes('1.34.1'), kubectl: 'unused' },
      '1.34.1',
      ['etcd', 'kube-apiserver'],
    ],
    [
      'a pre-release without a scheduler',
      {
        etcd,
        'kube-apiserver': kubernetes('1.37.0-alpha.1'),
        'kube-controller-manager': kubernetes('1.37.0-alpha.1'),
      },
      '1.37.0-alpha.1',
      ['etcd', 'kube-apiserver', 'kube-controller-manager'],
    ],
  ];
  for (const [title, programs, version, names] of found) {
    test(`are found: ${title}`, () => {
      const real = findControlPlane(assets(programs));
      assert.equal(real.folder, folder);
      assert.equal(real.version, version);
      assert.deepEqual(programNames(real), names);
    });
  }

  const refused: readonly (readonly [string, Programs, RegExp, RegExp])[] = [
    ['nothing', {}, /it has no etcd and no kube-apiserver$/, /setup-envtest/],
    ['no etcd', { 'kube-apiserver': kubernetes('1.36.0') }, /it has no etcd$/, /setup-envtest/],
    ['a file that is not executable', { ...COMPLETE, etcd: null }, /etcd is not executable$/, /chmod \+x/],
    [
      'an old kube-apiserver',
      { ...COMPLETE, 'kube-apiserver': kubernetes('1.31.0') },
      /kube-apiserver 1.31.0 is too old$/,
      /use version 1.33 or newer/,
    ],
    [
      'an old kube-apiserver alone',
      { etcd, 'kube-apiserver': kubernetes('1.33.5') },
      /it has no kube-controller-manager and no kube-scheduler, and the embedded ones need kube-apiserver 1.34 or newer, not 1.33.5$/,
      /add kube-controller-manager and kube-scheduler 1.33.5/,
    ],
    [
      'a newer scheduler',
      { ...COMPLETE, 'kube-scheduler': kubernetes('1.37.0') },
      /kube-scheduler 1.37.0 does not fit kube-apiserver 1.36.0$/,
      /use kube-scheduler 1.36.0/,
    ],
    [
      'a much older controller manager',
      { ...COMPLETE, 'kube-controller-manager': kubernetes('1.34.0') },
      /kube-controller-manager 1.34.0 does not fit kube-apiserver 1.36.0$/,
      /one minor version older/,
    ],
    [
      'an old etcd',
      { ...COMPLETE, etcd: 'etcd Version: 3.4.27' },
      /etcd 3.4.27 is too old$/,
      /etcd 3.5 or newer/,
    ],
    [
      'another program',
      { ...COMPLETE, 'kube-apiserver': 'hello' },
      /kube-apiserver --version printed hello$/,
      /replace kube-apiserver/,
    ],
  ];
  for (const [title, programs, message, hint] of refused) {
    test(`are refused: ${title}`, () => {
      const path = assets(programs);
      assert.throws(
        () => findControlPlane(path),
        (error) => {
          assert.ok(error instanceof FairleadError);
          assert.match(error.message, message);
          assert.match(error.message, new RegExp(`^--control-plane ${path}: `));
          assert.match(error.hint ?? '', hint);
          return true;
        },
      );
    });
  }

  test('are refused: an empty folder name, as of an unset variable', () => {
    assert.throws(() => findControlPlane(''), /--control-plane: the folder is empty/);
  });
});
