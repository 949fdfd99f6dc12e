import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { test } from 'node:test';

/**
 * The files of the pod runtime that may call functions that read a file or folder whole, remove a tree, or wait for a
 * process, with the number of calls. All others use kernel/bounded-file.ts and files/file-tree.ts, since a pod or an image
 * may have written any number of bytes and files, a pipe, or a link.
 */
const ALLOWED: Readonly<Record<string, number>> = {
  // Files of /proc and /sys, which the kernel bounds.
  'control-groups.ts': 1,
  'sandbox.ts': 4,
  'server/resource-usage.ts': 6,
  'server/stats.ts': 3,
  'terminal.ts': 1,
  // Files that only this program, crun and conmon write.
  'container-folder.ts': 2,
  'kubelet.ts': 2,
  'node-logs.ts': 6,
  'oci-runtime.ts': 4,
  'exec-files.ts': 2,
  'pod-processes.ts': 1,
  'run-monitor.ts': 2,
  'runtime-state.ts': 6,
  // The machine's own folders, when the agent starts.
  'host-root.ts': 4,
  // An administrator's profiles.
  'seccomp.ts': 1,
  // Names and blobs in the store; trees of images only for `image rm`, in a process of its own.
  'images/blob-download.ts': 2,
  'images/image-archive.ts': 1,
  'images/image-store.ts': 6,
  // In a thread of its own.
  'images/layer.ts': 1,
};

const FORBIDDEN =
  /\b(?:readFileSync|readFile|readdirSync|readdir|execFileSync|execSync|spawnSync|rmSync|cpSync|rm)\(/g;
/** Functions of this name whose path is known to be of a bounded tree. */
const OWN: Readonly<Record<string, number>> = { 'files/file-tree.ts': 1, 'volume-files.ts': 1 };

const runtime = resolve(import.meta.dirname, '..', 'src', 'runtime');

test('the pod runtime reads files of pods and images in bounds', () => {
  const found: Record<string, number> = {};
  for (const entry of readdirSync(runtime, { withFileTypes: true, recursive: true })) {
    const file = relative(runtime, join(entry.parentPath, entry.name));
    if (!entry.isFile() || !/\.ts$/.test(file) || /\.test\.ts$|testing\//.test(file)) continue;
    const count = readFileSync(join(runtime, file), 'utf8').match(FORBIDDEN)?.length ?? 0;
    if (count > 0) found[file] = count;
  }
  assert.deepEqual(found, { ...ALLOWED, ...OWN });
});
