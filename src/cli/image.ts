import { readFileSync } from 'node:fs';
import { requireOwner } from '../cluster/requirements.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { readProxyVariables } from '../kube/proxy-environment.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, fileProblem } from '../lib/errors.ts';
import { loadImageArchive } from '../runtime/images/image-archive.ts';
import { pullImage } from '../runtime/images/image-pull.ts';
import { type ImageStore, openImageStore, type StoredImage } from '../runtime/images/image-store.ts';
import type { RegistryCredentials } from '../runtime/images/registry.ts';
import { defineCommand, type Output } from './command.ts';
import { withImageFile } from './image-file.ts';
import { NAME_OPTION } from './name-option.ts';
import { flag, text, usageError } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { formatTable } from './table.ts';
import { showProgress } from './terminal.ts';

export const command = defineCommand({
  name: 'image',
  summary: 'load, pull, list and remove images of pods',
  description: [
    'The images of a local cluster\'s pods; all of its nodes share them. "host" (this machine\'s own root file system) and "fairlead" are built in.',
    [
      '  load  from FILE: an OCI image layout in an archive or a folder, or an archive',
      '        of "docker save"; "-" is standard input. Without such a file: the image',
      '        NAME of docker, podman or containerd. Pods use it whatever their',
      '        imagePullPolicy is',
      '  pull  from its registry, through the network of this machine',
      '  ls    names, digests and sizes',
      '  rm    remove a name, and content without another name',
    ].join('\n'),
  ],
  synopsis: ['load FILE|NAME|-', 'pull IMAGE', 'ls', 'rm IMAGE'],
  arguments: [
    { name: 'ACTION', help: '', choices: ['load', 'pull', 'ls', 'rm'] },
    { name: 'IMAGE', help: '', optional: true },
  ],
  options: {
    as: text('NAME:TAG', 'load: the image name, for an archive with one unnamed image'),
    credentials: text('FILE', 'pull: a file that contains one line "USER:PASSWORD"'),
    'plain-http': flag('pull: use plain HTTP without TLS'),
    ...FORMAT_OPTIONS,
    name: NAME_OPTION,
  },
  // Its own network is needed: registries are reached through that of the machine.
  asUser: ({ options }) => ({ cluster: options.name, starts: true, network: 'machine' }),
  async run({ options, given, args: [what = '', subject] }, output) {
    for (const name of given) {
      const allowed = OPTIONS_OF[what] ?? [];
      if (name !== 'name' && !allowed.includes(name))
        throw usageError('image', `--${name} does not apply to image ${what}`);
    }
    if (what === 'ls' && subject !== undefined)
      throw usageError('image', `unexpected argument ${JSON.stringify(subject)}`);
    requireOwner('image', options.name);
    const cluster = requireCluster(options.name);
    const store = openImageStore(clusterPaths(cluster.name).images);
    const now = new Date(systemClock.now());
    const needed = (name: string) => {
      if (subject !== undefined) return subject;
      throw usageError('image', `missing ${name}`);
    };
    switch (what) {
      case 'load': {
        const name = options.as === null ? {} : { name: options.as };
        const file = needed('FILE, the name of an image, or - for standard input');
        const images = await showing(
          output,
          `loading ${file}`,
          withImageFile(file, store.temporary('input'), (path) =>
            loadImageArchive(store, path, { now, ...name }),
          ),
        );
        print(output, images, options);
        return 0;
      }
      case 'pull': {
        const name = needed('IMAGE');
        const registry = name.split('/')[0] ?? '';
        const pulling = pullImage(store, name, {
          now,
          isNamed: true,
          mirrors: cluster.registryMirrors ?? [],
          proxies: readProxyVariables(process.env),
          credentials: options.credentials === null ? null : readCredentials(options.credentials),
          plainHttp: options['plain-http'] ? [registry] : [],
        });
        const image = await showing(output, `pulling ${name}`, pulling);
        print(output, [image], options);
        return 0;
      }
      case 'ls':
        print(output, store.list(), options, BUILTIN_ROWS);
        return 0;
      case 'rm':
        return remove(store, needed('IMAGE'), output, options);
      default:
        throw usageError('image', 'missing ACTION');
    }
  },
});

/** Shows the duration of work in progress. */
async function showing<T>(output: Output, what: string, work: Promise<T>): Promise<T> {
  const started = performance.now();
  const seconds = () => Math.round((performance.now() - started) / 1000);
  const progress = showProgress(output, systemClock, () => `${what} (${seconds()} s)`);
  return await work.finally(() => progress.end());
}

/** The options of each action in addition to --name. */
const OPTIONS_OF: Readonly<Record<string, readonly string[]>> = {
  load: ['as', 'output'],
  pull: ['credentials', 'plain-http', 'output'],
  ls: ['output'],
  rm: ['output'],
};

function remove(
  store: ImageStore,
  name: string,
  output: Output,
  options: Parameters<typeof renderFacts>[1],
): number {
  const image = store.remove(name);
  if (!image) {
    throw new FairleadError(`no such image: ${name}`, {
      op: 'fairlead image rm',
      code: 'no-image',
      hint: 'see: fairlead image ls',
    });
  }
  output.out(renderFacts({ removed: image.name }, options) ?? `removed ${image.name}\n`);
  return 0;
}

/** The images of every node, in the columns of `print`. */
const BUILTIN_ROWS = [
  ['host', '-', '-', "built in: this machine's root file system"],
  ['fairlead', '-', '-', 'built in: host, with this program'],
];

function print(
  output: Output,
  images: readonly StoredImage[],
  options: Parameters<typeof renderFacts>[1],
  builtin: readonly (readonly string[])[] = [],
): void {
  const rows = images.map(({ name, digest, size, source, storedAt }) => ({
    name,
    digest,
    size,
    source,
    storedAt,
  }));
  const facts = renderFacts(rows, options);
  output.out(
    facts ??
      formatTable(
        [
          ['NAME', 'DIGEST', 'SIZE', 'FROM'],
          ...images.map(({ name, digest, size, source }) => [
            name,
            digest.slice(0, 19),
            megabytes(size),
            source,
          ]),
          ...builtin,
        ],
        output.columns,
        ['DIGEST', 'FROM', 'SIZE'],
      ),
  );
}

const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

function readCredentials(file: string): RegistryCredentials {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new FairleadError(`cannot read ${file}: ${fileProblem(error)}`, {
      op: 'fairlead image pull',
      code: 'bad-credentials',
      cause: error,
    });
  }
  const colon = text.indexOf(':');
  if (colon > 0) return { username: text.slice(0, colon), password: text.slice(colon + 1) };
  throw new FairleadError(`${file} does not contain USER:PASSWORD`, {
    op: 'fairlead image pull',
    code: 'bad-credentials',
    hint: 'write the name and the password into one line, with a colon between them',
  });
}
