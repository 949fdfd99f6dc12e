import { createHash } from 'node:crypto';
import { createReadStream, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { identify } from '../../kernel/process-identity.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import type { ImageStore } from './image-store.ts';
import type { Descriptor } from './manifest.ts';
import type { Registry } from './registry.ts';

const ATTEMPTS = 4;
/** The pause before the second attempt, doubled before each later one. */
const FIRST_PAUSE_MS = 250;
/** The transfer was interrupted and can be resumed. */
const INCOMPLETE = 'incomplete';

/**
 * Downloads a blob into the store and verifies its digest. Resumes an interrupted download of this process or of a dead
 * one. Throws FairleadError "bad-image" for wrong contents, or the registry's error.
 */
export async function downloadBlob(store: ImageStore, registry: Registry, blob: Descriptor): Promise<void> {
  if (store.hasBlob(blob)) return;
  const file = openDownload(store, blob.digest);
  for (let attempt = 1; ; attempt++) {
    try {
      await fetchRest(registry, blob, file);
      break;
    } catch (error) {
      // The received part is kept for the next attempt.
      if (attempt === ATTEMPTS || (error instanceof FairleadError && error.code !== INCOMPLETE)) throw error;
      await setTimeout(FIRST_PAUSE_MS * 2 ** (attempt - 1));
    }
  }
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  const digest = `sha256:${hash.digest('hex')}`;
  if (digest !== blob.digest) {
    rmSync(file, { force: true });
    throw new FairleadError(`the registry sent ${digest} for ${blob.digest}`, {
      op: 'pull image',
      code: 'bad-image',
      hint: "the transfer or the registry's data is corrupt",
    });
  }
  const handle = await open(file, 'r');
  await handle.sync();
  await handle.close();
  renameSync(file, store.blobPath(blob.digest));
}

async function fetchRest(registry: Registry, blob: Descriptor, file: string): Promise<void> {
  const have = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (have === blob.size && have > 0) return;
  const { body, resumed } = await registry.blob(blob.digest, have < blob.size ? have : 0);
  const handle = await open(file, resumed ? 'a' : 'w', 0o600);
  let size = resumed ? have : 0;
  try {
    for await (const chunk of body) {
      size += chunk.length;
      if (size > blob.size) {
        throw new FairleadError(`the registry sent more than the ${blob.size} bytes of ${blob.digest}`, {
          op: 'pull image',
          code: 'bad-image',
        });
      }
      await handle.appendFile(chunk);
    }
  } finally {
    await handle.close();
  }
  if (size < blob.size) {
    throw new FairleadError(`${blob.digest} ended after ${size} of ${blob.size} bytes`, {
      op: 'pull image',
      code: INCOMPLETE,
    });
  }
}

/** Returns the file of a download: that of a dead process, or a new one. */
function openDownload(store: ImageStore, digest: string): string {
  const mine = store.temporary('blob');
  const named = join(dirname(mine), basename(mine).replace(/\.blob\..*$/, `.blob-${digest.slice(7)}`));
  for (const entry of readdirSync(dirname(mine))) {
    const [pid = '', startTime, what] = entry.split('.');
    if (what !== `blob-${digest.slice(7)}` || identify(Number(pid))?.startTime === startTime) continue;
    try {
      // The rename decides which of several processes resumes it.
      renameSync(join(dirname(mine), entry), named);
      return named;
    } catch (error) {
      if (!hasCode(error, 'ENOENT')) throw error;
    }
  }
  return named;
}
