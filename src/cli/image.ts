import { readFileSync } from 'node:fs';
import { requireRoot } from '../cluster/requirements.ts';
import { clusterPaths, DEFAULT_CLUSTER, requireCluster } from '../cluster/state.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { loadImageArchive } from '../runtime/images/image-archive.ts';
import { pullImage } from '../runtime/images/image-pull.ts';
import { type ImageStore, openImageStore, type StoredImage } from '../runtime/images/image-store.ts';
import type { RegistryCredentials } from '../runtime/images/registry.ts';
import { type Command, formatTable, type Output, parseArguments, textOption, usageError } from './command.ts';

export const command: Command = {
  help: `Usage: fairlead image load FILE [--as NAME:TAG] [--name NAME] [--json]
       fairlead image pull IMAGE [--credentials FILE] [--plain-http] [--name NAME] [--json]
       fairlead image ls [--name NAME] [--json]
       fairlead image rm IMAGE [--name NAME]

The images of a local cluster's pods; all of its nodes share them. "host" (this machine's own root file system) and
"fairlead" are built in.

  load   from FILE: an OCI image layout, in an archive or a folder, or what docker save writes. Pods use it as it is,
         whatever imagePullPolicy says
  pull   from its registry, by this machine: the cluster's nodes reach only what is on their own wire
  ls     names, digests and sizes
  rm     takes a name away, and what no other name needs

  --as NAME:TAG        the name, for an archive with one image that has none
  --credentials FILE   "USER:PASSWORD" in one line
  --plain-http         the registry speaks HTTP without TLS
  --name NAME          the cluster (default: default)
  --json               one JSON array of {name, digest, size, source, storedAt}
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'image',
      argv,
      {
        name: { type: 'string' },
        as: { type: 'string' },
        credentials: { type: 'string' },
        'plain-http': { type: 'boolean' },
        json: { type: 'boolean' },
      },
      { least: 1, most: 2, names: 'load, pull, ls or rm' },
    );
    const [what, subject] = parsed.positionals;
    requireRoot('image');
    const cluster = requireCluster(textOption(parsed, 'name', DEFAULT_CLUSTER));
    const store = openImageStore(clusterPaths(cluster.name).images);
    const now = new Date(systemClock.now());
    const json = parsed.values['json'] === true;
    const needed = (name: string) => {
      if (subject !== undefined) return subject;
      throw usageError('image', `image ${what} needs ${name}`);
    };
    switch (what) {
      case 'load': {
        const name = textOption(parsed, 'as', '');
        const images = await loadImageArchive(store, needed('FILE'), { now, ...(name ? { name } : {}) });
        print(output, images, json);
        return 0;
      }
      case 'pull': {
        const name = needed('IMAGE');
        const file = textOption(parsed, 'credentials', '');
        const registry = name.split('/')[0] ?? '';
        const image = await pullImage(store, name, {
          now,
          credentials: file === '' ? null : readCredentials(file),
          plainHttp: parsed.values['plain-http'] ? [registry] : [],
        });
        print(output, [image], json);
        return 0;
      }
      case 'ls':
        print(output, store.list(), json);
        return 0;
      case 'rm':
        return remove(store, needed('IMAGE'), output);
      default:
        throw usageError('image', `there is no image ${JSON.stringify(what)}; use load, pull, ls or rm`);
    }
  },
};

function remove(store: ImageStore, name: string, output: Output): number {
  const image = store.remove(name);
  if (!image) {
    throw new FairleadError(`there is no image ${JSON.stringify(name)}`, {
      op: 'fairlead image rm',
      code: 'no-image',
      hint: 'see: fairlead image ls',
    });
  }
  output.out(`${image.name} is gone\n`);
  return 0;
}

function print(output: Output, images: readonly StoredImage[], json: boolean): void {
  if (json) {
    const rows = images.map(({ name, digest, size, source, storedAt }) => ({
      name,
      digest,
      size,
      source,
      storedAt,
    }));
    output.out(`${JSON.stringify(rows, null, 2)}\n`);
    return;
  }
  output.out(
    formatTable([
      ['NAME', 'DIGEST', 'SIZE', 'FROM'],
      ...images.map(({ name, digest, size, source }) => [name, digest.slice(0, 19), megabytes(size), source]),
    ]),
  );
}

const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

function readCredentials(file: string): RegistryCredentials {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new FairleadError(`cannot read ${file}: ${messageOf(error)}`, {
      op: 'fairlead image pull',
      code: 'bad-credentials',
      cause: error,
    });
  }
  const colon = text.indexOf(':');
  if (colon > 0) return { username: text.slice(0, colon), password: text.slice(colon + 1) };
  throw new FairleadError(`${file} does not hold USER:PASSWORD`, {
    op: 'fairlead image pull',
    code: 'bad-credentials',
  });
}
