// Builds the OCI image of the agent without Docker, from packages of the npm and Debian registries alone:
//   tools/run image.mjs [--arch amd64|arm64] [--name fairlead:VERSION] [--out FOLDER] [--packages FILE]
// FOLDER becomes an OCI layout, which `ctr images import` (as a tar), skopeo and `fairlead image load` read. Needs npm,
// apt-get and dpkg-deb; for another architecture than the machine's, apt-get reads that architecture's index first.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { version, dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const { values } = parseArgs({
  options: {
    arch: { type: 'string', default: process.arch === 'x64' ? 'amd64' : 'arm64' },
    name: { type: 'string', default: `fairlead:${version}` },
    out: { type: 'string', default: join(root, 'dist', 'image') },
    // For the SBOM of a release: the packages in the image, as JSON.
    packages: { type: 'string' },
  },
});
const arch = values.arch;
if (!['amd64', 'arm64'].includes(arch)) throw new Error(`--arch is amd64 or arm64, not ${arch}`);
const npmArch = arch === 'amd64' ? 'x64' : 'arm64';
const [, NODE_VERSION] =
  /^NODE_VERSION=(.*)$/m.exec(readFileSync(join(root, 'tools/setup.sh'), 'utf8')) ?? [];

/** Libraries that Node.js, koffi and iptables are linked with; iptables' extensions are in its package. */
const DEBIAN = [
  'libc6',
  'libgcc-s1',
  'libstdc++6',
  'iptables',
  'libxtables12',
  'libip4tc2',
  'libip6tc2',
].concat(['libmnl0', 'libnetfilter-conntrack3', 'libnfnetlink0', 'libnftnl11']);
/** Files of the packages above that no program here reads. */
const UNUSED = ['usr/share', 'usr/lib/*/gconv', 'usr/lib/*/audit', 'etc', 'var'];

const out = resolve(values.out);
const work = `${out}.work`;
rmSync(work, { recursive: true, force: true });
rmSync(out, { recursive: true, force: true });
const system = join(work, 'system');
const program = join(work, 'program', 'opt', 'fairlead');
const packages = join(work, 'packages');
for (const folder of [system, program, packages, join(out, 'blobs', 'sha256')])
  mkdirSync(folder, { recursive: true });
const run = (command, args, options = {}) =>
  execFileSync(command, args, { stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 28, ...options });

/** Downloads an npm package and returns the folder with its files. */
function fetchNpm(name) {
  const target = join(packages, name.replace(/[^a-z0-9]+/gi, '-'));
  mkdirSync(target);
  const [{ filename }] = JSON.parse(
    run('npm', ['pack', name, '--json', '--pack-destination', packages]).toString(),
  );
  run('tar', ['-xzf', join(packages, filename.replace('@', '').replace('/', '-')), '-C', target]);
  return join(target, 'package');
}

/**
 * Builds the userland: the files of Debian's packages, and iptables under the names of its alternatives.
 */
function buildSystem() {
  const native = run('dpkg', ['--print-architecture']).toString().trim() === arch;
  const apt = native ? [] : foreignIndex();
  run('apt-get', [...apt, 'download', ...DEBIAN.map((name) => `${name}:${arch}`)], { cwd: packages });
  for (const file of readdirSync(packages).filter((name) => name.endsWith('.deb'))) {
    run('dpkg-deb', ['-x', join(packages, file), system]);
  }
  run('sh', ['-c', `rm -rf ${UNUSED.join(' ')}`], { cwd: system });
  for (const family of ['iptables', 'ip6tables']) {
    for (const suffix of ['', '-save', '-restore']) {
      const link = join(system, 'usr', 'sbin', `${family}${suffix}`);
      if (!existsSync(link)) symlinkSync('xtables-nft-multi', link);
    }
  }
  for (const folder of ['etc', 'tmp', 'run', 'var/lib', 'proc', 'sys', 'dev']) {
    mkdirSync(join(system, folder), { recursive: true });
  }
  // Container runtimes refer to network namespaces by /var/run/netns.
  symlinkSync('../run', join(system, 'var', 'run'));
  writeFileSync(join(system, 'etc', 'passwd'), 'root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/:/\n');
  writeFileSync(join(system, 'etc', 'group'), 'root:x:0:\nnogroup:x:65534:\n');
}

/** Returns options of apt-get for an index of the other architecture, separate from the machine's. */
function foreignIndex() {
  const lists = join(work, 'apt');
  mkdirSync(join(lists, 'partial'), { recursive: true });
  const options = [
    `APT::Architecture=${arch}`,
    `APT::Architectures::=${arch}`,
    `Dir::State::lists=${lists}`,
  ].flatMap((option) => ['-o', option]);
  run('apt-get', [...options, 'update', '-qq']);
  return options;
}

/** Whole commands in one file, for a faster start, that no container of the image runs. */
const OF_LOCAL_CLUSTERS = ['control-plane.cjs', 'pod-runtime.cjs', 'supervise.cjs', 'up.cjs'];

function buildProgram() {
  run(process.execPath, [join(root, 'tools/build.mjs')]);
  const dist = join(root, 'dist');
  const entry = readFileSync(join(dist, 'fairlead.mjs'), 'utf8');
  // dist/ keeps chunks of earlier builds for running processes: only the files of this build belong in the
  // image.
  const wanted = new Set(['fairlead.mjs']);
  for (const pending = [entry]; pending.length > 0; ) {
    for (const [, name] of pending.pop().matchAll(/["']\.\/([\w.-]+\.mjs)["']/g)) {
      if (wanted.has(name)) continue;
      wanted.add(name);
      pending.push(readFileSync(join(dist, name), 'utf8'));
    }
  }
  for (const name of readdirSync(dist)) {
    if (OF_LOCAL_CLUSTERS.includes(name)) continue;
    if (wanted.has(name) || (statSync(join(dist, name)).isFile() && !/\.(mjs|map)$/.test(name))) {
      cpSync(join(dist, name), join(program, 'dist', name));
    }
  }
  const koffi = fetchNpm(`koffi@${dependencies.koffi}`);
  // Without the sources of its native part.
  cpSync(koffi, join(program, 'node_modules', 'koffi'), {
    recursive: true,
    filter: (path) => statSync(path).isDirectory() || /\.(js|cjs|mjs|json)$/.test(path),
  });
  const native = fetchNpm(`@koromix/koffi-linux-${npmArch}@${dependencies.koffi}`);
  rmSync(join(native, 'musl_x64'), { recursive: true, force: true });
  cpSync(native, join(program, 'node_modules', '@koromix', `koffi-linux-${npmArch}`), { recursive: true });
  cpSync(join(fetchNpm(`node-linux-${npmArch}@${NODE_VERSION}`), 'bin', 'node'), join(program, 'node'));
  // For `kubectl exec`: the path is absolute within the image.
  mkdirSync(join(work, 'program', 'usr', 'local', 'bin'), { recursive: true });
  symlinkSync('/opt/fairlead/node', join(work, 'program', 'usr', 'local', 'bin', 'node'));
}

const sha256 = (data) => createHash('sha256').update(data).digest('hex');

function put(data, mediaType) {
  const digest = sha256(data);
  writeFileSync(join(out, 'blobs', 'sha256', digest), data);
  return { mediaType, digest: `sha256:${digest}`, size: data.length };
}

/** Makes one layer; equal files make an equal digest. */
function layer(folder) {
  const file = join(work, 'layer.tar');
  run('tar', [
    ...['--numeric-owner', '--owner=0', '--group=0', '--sort=name', '--mtime=@0'],
    ...['-C', folder, '-cf', file, '.'],
  ]);
  const tar = readFileSync(file);
  return {
    diffId: `sha256:${sha256(tar)}`,
    size: tar.length,
    blob: put(gzipSync(tar, { level: 9 }), 'application/vnd.oci.image.layer.v1.tar+gzip'),
  };
}

buildSystem();
buildProgram();
const layers = [layer(system), layer(join(work, 'program'))];
const config = put(
  Buffer.from(
    JSON.stringify({
      architecture: arch,
      os: 'linux',
      created: '1970-01-01T00:00:00Z',
      config: {
        Entrypoint: [
          '/opt/fairlead/node',
          '--disable-warning=ExperimentalWarning',
          '--max-semi-space-size=4',
          '/opt/fairlead/dist/fairlead.mjs',
        ],
        Env: ['PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
        StopSignal: 'SIGTERM',
        WorkingDir: '/',
        Labels: { 'org.opencontainers.image.title': 'fairlead', 'org.opencontainers.image.version': version },
      },
      rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
    }),
  ),
  'application/vnd.oci.image.config.v1+json',
);
const manifest = put(
  Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config,
      layers: layers.map(({ blob }) => blob),
    }),
  ),
  'application/vnd.oci.image.manifest.v1+json',
);
writeFileSync(join(out, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
writeFileSync(
  join(out, 'index.json'),
  JSON.stringify({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: [
      {
        ...manifest,
        platform: { os: 'linux', architecture: arch },
        annotations: {
          'org.opencontainers.image.ref.name': values.name,
          'io.containerd.image.name': values.name.includes('/')
            ? values.name
            : `docker.io/library/${values.name}`,
        },
      },
    ],
  }),
);
if (values.packages !== undefined) {
  const debian = readdirSync(packages)
    .filter((file) => file.endsWith('.deb'))
    .sort()
    .map((file) => ({ file, sha256: sha256(readFileSync(join(packages, file))) }));
  const npm = [
    `@koromix/koffi-linux-${npmArch}@${dependencies.koffi}`,
    `node-linux-${npmArch}@${NODE_VERSION}`,
  ].map((name) => {
    const at = name.lastIndexOf('@');
    return {
      name: name.slice(0, at),
      version: name.slice(at + 1),
      purl: `pkg:npm/${name.replace(/^@/, '%40')}`,
    };
  });
  writeFileSync(values.packages, JSON.stringify({ debian, npm }));
}
rmSync(work, { recursive: true, force: true });
const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const sum = (sizes) => sizes.reduce((total, size) => total + size, 0);
console.log(
  `${values.name} (${arch}) in ${out}: ${mebibytes(sum(layers.map(({ blob }) => blob.size)))} to download, ` +
    `${mebibytes(sum(layers.map(({ size }) => size)))} unpacked`,
);
