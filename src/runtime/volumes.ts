import { chmodSync, chownSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { libc, systemError } from '../kernel/libc.ts';
import { parseQuantity } from '../kube/quantity.ts';
import type { Container, PersistentVolume, Pod } from '../kube/types.ts';
import { claimName, prepareLocalVolume, readOnlyVolumes } from './claimed-volumes.ts';
import { type EnvironmentSources, podField, resourceField } from './environment.ts';
import { expand, missingVariable } from './expansion.ts';
import { checkIds } from './image-user.ts';
import { KubeletError } from './kubelet-error.ts';
import type { OciMount } from './oci-config.ts';
import { openSubPath } from './sub-path.ts';
import { VOLUME_KINDS } from './supported-fields.ts';
import { type VolumeFile, writeVolumeFiles } from './volume-files.ts';

/** The contents of volumes; null for an object that does not exist. Values are bytes. */
export interface VolumeSources {
  configMap(name: string): ReadonlyMap<string, Uint8Array> | null;
  secret(name: string): ReadonlyMap<string, Uint8Array> | null;
  /** Converts a path of the node to a path on this machine. */
  onMachine(path: string): string;
  /** Returns the root of an image's file system on this machine. */
  image(reference: string, pullPolicy: string | undefined): Promise<string>;
  /** Returns a token of the pod's service account. */
  token(audience: string | undefined, expirationSeconds: number): Promise<string>;
  /** Returns the volume to which a claim of the pod is bound. */
  claimed(claim: string): Promise<PersistentVolume>;
  readonly fields: Pick<EnvironmentSources, 'pod' | 'podIps' | 'hostIps' | 'allocatable'>;
}

type Volume = NonNullable<NonNullable<Pod['spec']>['volumes']>[number];

interface KeyItem {
  key: string;
  path: string;
  mode?: number;
}

/** Prepares a pod's volumes below `folder`; returns their paths on this machine by name. */
export async function prepareVolumes(
  pod: Pod,
  folder: string,
  sources: VolumeSources,
): Promise<Map<string, string>> {
  checkIds(pod);
  const paths = new Map<string, string>();
  for (const volume of pod.spec?.volumes ?? []) {
    const path = join(folder, volume.name);
    if (volume.hostPath) {
      const hostPath = { ...volume.hostPath, path: sources.onMachine(volume.hostPath.path) };
      prepareHostPath(hostPath);
      paths.set(volume.name, hostPath.path);
      continue;
    }
    const claim = claimName(pod, volume);
    if (claim !== null) {
      paths.set(volume.name, await prepareClaimed(pod, await sources.claimed(claim), sources.onMachine));
      continue;
    }
    if (volume.image) {
      paths.set(volume.name, await sources.image(volume.image.reference ?? '', volume.image.pullPolicy));
      continue;
    }
    mkdirSync(path, { recursive: true, mode: 0o755 });
    paths.set(volume.name, path);
    if (volume.emptyDir) {
      const { medium, sizeLimit } = volume.emptyDir;
      if (medium === 'Memory') mountMemory(path, parseQuantity(String(sizeLimit ?? '')));
      chmodSync(path, 0o777);
      const group = pod.spec?.securityContext?.fsGroup;
      if (group !== undefined) {
        chownSync(path, 0, group);
        // New files inherit the group.
        chmodSync(path, 0o2777);
      }
    } else
      await writeVolumeFiles(
        path,
        await volumeFiles(pod, volume, sources),
        pod.spec?.securityContext?.fsGroup,
      );
  }
  return paths;
}

/** Writes the current contents of volumes with data from objects, where they have changed (configMap, secret, projected, downwardAPI). */
export async function refreshVolumes(
  pod: Pod,
  folder: string,
  sources: Omit<VolumeSources, 'image' | 'onMachine'>,
): Promise<void> {
  for (const volume of pod.spec?.volumes ?? []) {
    if (!followsObjects(volume)) continue;
    const group = pod.spec?.securityContext?.fsGroup;
    await writeVolumeFiles(join(folder, volume.name), await volumeFiles(pod, volume, sources), group);
  }
}

/** Reports whether a volume's files contain data of API objects, and change with them. */
export function followsObjects({
  hostPath,
  emptyDir,
  persistentVolumeClaim,
  ephemeral,
  image,
}: Volume): boolean {
  return !hostPath && !emptyDir && !persistentVolumeClaim && !ephemeral && !image;
}

/** Prepares a claimed volume and returns its path on this machine. */
async function prepareClaimed(
  pod: Pod,
  { metadata, spec }: PersistentVolume,
  onMachine: VolumeSources['onMachine'],
): Promise<string> {
  if (spec?.volumeMode === 'Block') throw refusal(`persistentvolume ${metadata?.name} is a block device`);
  if (spec?.local) {
    await prepareLocalVolume(pod, spec.local.path);
    return spec.local.path;
  }
  if (spec?.hostPath) {
    const path = onMachine(spec.hostPath.path);
    prepareHostPath({ ...spec.hostPath, path });
    return path;
  }
  throw refusal(
    `persistentvolume ${metadata?.name}: this kind of volume is not supported; use local or hostPath`,
  );
}

/** Unmounts the mounts of `prepareVolumes`. */
export function releaseVolumes(pod: Pod, folder: string): void {
  for (const volume of pod.spec?.volumes ?? []) {
    if (volume.emptyDir?.medium === 'Memory') libc().umount2(join(folder, volume.name), 2);
  }
}

/**
 * Returns a container's volumeMounts as bind mounts. `pin` takes an open file and returns a path to it that no pod can
 * change. Throws KubeletError that names the failed mount.
 */
export function volumeMounts(
  pod: Pod,
  container: Container,
  paths: ReadonlyMap<string, string>,
  env: ReadonlyMap<string, string>,
  pin: (fd: number) => string,
): OciMount[] {
  const readOnly = readOnlyVolumes(pod);
  return (container.volumeMounts ?? []).map((mount) => {
    const path = paths.get(mount.name);
    if (path === undefined) throw refusal(`volumeMounts: there is no volume ${JSON.stringify(mount.name)}`);
    const volume = pod.spec?.volumes?.find(({ name }) => name === mount.name);
    const isImage = volume?.image !== undefined;
    // As upstream's: this program writes them, as root, in a folder that no pod can change meanwhile.
    const isReadOnly = readOnly.has(mount.name) || (volume !== undefined && followsObjects(volume));
    const source = mountSource(mount, path, env, !isImage, pin);
    const propagation =
      mount.mountPropagation === 'HostToContainer'
        ? 'rslave'
        : mount.mountPropagation === 'Bidirectional'
          ? 'rshared'
          : 'rprivate';
    return {
      destination: mount.mountPath,
      type: 'bind',
      source,
      options: [
        'rbind',
        propagation,
        ...(isImage ? ['ro', 'noexec', 'nodev'] : [isReadOnly ? 'ro' : access(mount)]),
      ],
    };
  });
}

/** Returns the folder or file of a mount: its volume, or the subPath inside it, which is created if missing. */
function mountSource(
  mount: VolumeMount,
  volume: string,
  env: ReadonlyMap<string, string>,
  mayCreate: boolean,
  pin: (fd: number) => string,
): string {
  const { name, subPathExpr } = mount;
  if (subPathExpr) {
    const missing = missingVariable(subPathExpr, env);
    if (missing !== null)
      throw refusal(`volumeMounts[${name}].subPathExpr: missing value for ${JSON.stringify(missing)}`);
  }
  const sub = subPathExpr ? expand(subPathExpr, env) : (mount.subPath ?? '');
  if (sub === '') return volume;
  const refuse = (why: string) => refusal(`volumeMounts[${name}].subPath: ${JSON.stringify(sub)} ${why}`);
  if (sub.startsWith('/') || sub.split('/').includes('..')) throw refuse('is outside the volume');
  const opened = openSubPath(volume, sub, mayCreate);
  if (opened === 'outside') throw refuse('is a link to a path outside the volume');
  if (opened === 'missing') throw refuse(mayCreate ? 'is a link to a missing file' : 'is not in the image');
  return pin(opened);
}

type VolumeMount = NonNullable<Container['volumeMounts']>[number];

/** "rro": nested mounts are read-only too (mount_setattr, Linux 5.12). */
function access(mount: VolumeMount): string {
  if (!mount.readOnly) return 'rw';
  const { recursiveReadOnly } = mount as { recursiveReadOnly?: string };
  return recursiveReadOnly === 'Enabled' || recursiveReadOnly === 'IfPossible' ? 'rro' : 'ro';
}

async function volumeFiles(
  pod: Pod,
  volume: Volume,
  sources: Omit<VolumeSources, 'image' | 'onMachine'>,
): Promise<VolumeFile[]> {
  const { configMap, secret, downwardAPI, projected } = volume;
  if (configMap) {
    return keyed('configmap', configMap.name, sources.configMap, configMap, configMap.defaultMode ?? 0o644);
  }
  if (secret) {
    return keyed('secret', secret.secretName, sources.secret, secret, secret.defaultMode ?? 0o644);
  }
  if (downwardAPI) return downward(pod, downwardAPI.items ?? [], downwardAPI.defaultMode ?? 0o644, sources);
  if (!projected)
    throw refusal(
      `volumes[${volume.name}]: this kind of volume is not supported; use one of ${VOLUME_KINDS.join(', ')}`,
    );
  const mode = projected.defaultMode ?? 0o644;
  const files: VolumeFile[] = [];
  for (const source of projected.sources ?? []) {
    if (source.configMap) {
      files.push(...keyed('configmap', source.configMap.name, sources.configMap, source.configMap, mode));
    }
    if (source.secret) {
      files.push(...keyed('secret', source.secret.name, sources.secret, source.secret, mode));
    }
    if (source.downwardAPI) files.push(...downward(pod, source.downwardAPI.items ?? [], mode, sources));
    if (source.serviceAccountToken) {
      const { audience, expirationSeconds = 3600, path } = source.serviceAccountToken;
      const content = Buffer.from(await sources.token(audience, expirationSeconds));
      files.push({ path, content, ...tokenAccess(pod, mode) });
    }
  }
  return files;
}

/** Only the user of all containers, and the fsGroup, can read a token, if the pod has them (upstream's volume/projected). */
function tokenAccess(pod: Pod, mode: number): Pick<VolumeFile, 'mode' | 'user'> {
  const user = commonUser(pod);
  const isOwned = user !== undefined || pod.spec?.securityContext?.fsGroup !== undefined;
  return { mode: isOwned ? 0o600 : mode, ...(user === undefined ? {} : { user }) };
}

/** Returns the user that all containers run as; undefined if one names none, or another. */
function commonUser(pod: Pod): number | undefined {
  const { initContainers = [], containers = [], securityContext } = pod.spec ?? {};
  const users = new Set(
    [...initContainers, ...containers].map(
      (container) => container.securityContext?.runAsUser ?? securityContext?.runAsUser,
    ),
  );
  return users.size === 1 ? [...users][0] : undefined;
}

/** Returns the files of a ConfigMap or Secret: those of `items`, or one for each key. */
function keyed(
  kind: string,
  name = '',
  read: (name: string) => ReadonlyMap<string, Uint8Array> | null,
  { items, optional }: { readonly items?: KeyItem[]; readonly optional?: boolean },
  mode: number,
): VolumeFile[] {
  const values = read(name);
  if (!values) {
    if (optional) return [];
    throw new KubeletError('FailedMount', `${kind} ${JSON.stringify(name)} not found`, {
      op: 'mount volume',
    });
  }
  if (!items) return [...values].map(([path, content]) => ({ path, content, mode }));
  return items.flatMap((item) => {
    const content = values.get(item.key);
    if (content) return [{ path: item.path, content, mode: item.mode ?? mode }];
    if (optional) return [];
    throw new KubeletError(
      'FailedMount',
      `${kind} ${JSON.stringify(name)} has no key ${JSON.stringify(item.key)}`,
      { op: 'mount volume' },
    );
  });
}

interface DownwardItem {
  path: string;
  fieldRef?: { fieldPath: string };
  resourceFieldRef?: { containerName?: string; resource: string; divisor?: unknown };
  mode?: number;
}

function downward(
  pod: Pod,
  items: readonly DownwardItem[],
  mode: number,
  sources: Omit<VolumeSources, 'image' | 'onMachine'>,
): VolumeFile[] {
  return items.map((item) => {
    const { initContainers = [], containers = [] } = pod.spec ?? {};
    const container = [...containers, ...initContainers].find(
      ({ name }) => name === item.resourceFieldRef?.containerName,
    );
    const text = item.fieldRef
      ? podField(item.fieldRef.fieldPath, sources.fields)
      : item.resourceFieldRef && container
        ? resourceField(container, item.resourceFieldRef, sources.fields.allocatable)
        : '';
    return { path: item.path, content: Buffer.from(text), mode: item.mode ?? mode };
  });
}

function prepareHostPath(volume: { path: string; type?: string }): void {
  const found = statSync(volume.path, { throwIfNoEntry: false });
  const missing = (what: string) =>
    new KubeletError('FailedMount', `hostPath ${volume.path} is not a ${what}`, { op: 'mount volume' });
  switch (volume.type ?? '') {
    // A missing path is created as a folder, as by container runtimes: manifests name folders that few nodes have.
    case '':
      if (!found) mkdirSync(volume.path, { recursive: true, mode: 0o755 });
      return;
    case 'DirectoryOrCreate':
      if (!found) mkdirSync(volume.path, { recursive: true, mode: 0o755 });
      else if (!found.isDirectory()) throw missing('folder');
      return;
    case 'FileOrCreate':
      if (!found) writeFileSync(volume.path, '', { mode: 0o644 });
      else if (!found.isFile()) throw missing('file');
      return;
    case 'Directory':
      if (!found?.isDirectory()) throw missing('folder');
      return;
    case 'File':
      if (!found?.isFile()) throw missing('file');
      return;
    case 'Socket':
      if (!found?.isSocket()) throw missing('socket');
      return;
    case 'CharDevice':
      if (!found?.isCharacterDevice()) throw missing('character device');
      return;
    case 'BlockDevice':
      if (!found?.isBlockDevice()) throw missing('block device');
      return;
    default:
      throw refusal(`hostPath.type ${JSON.stringify(volume.type)} is not supported`);
  }
}

function mountMemory(path: string, size: number): void {
  if (mountsOn(path)) return;
  const limit = Number.isFinite(size) ? `,size=${Math.ceil(size)}` : '';
  if (libc().mount('tmpfs', path, 'tmpfs', 0, `mode=1777${limit}`) !== 0)
    throw systemError('mount tmpfs', path);
}

/** Returns true for a mount point: an earlier agent has mounted it, and it contains the pod's files. */
function mountsOn(path: string): boolean {
  return statSync(path).dev !== statSync(dirname(path)).dev;
}

function refusal(message: string): KubeletError {
  return new KubeletError('CreateContainerConfigError', message, { op: 'prepare volume' });
}
