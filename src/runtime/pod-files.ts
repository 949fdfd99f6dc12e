import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import type { Pod } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { Launch } from './container-config.ts';
import type { EnvironmentSources } from './environment.ts';
import { removeTree } from './files/file-tree.ts';
import { KubeletError } from './kubelet-error.ts';
import { hostsFile, podHostname, resolvConf } from './name-resolution.ts';
import { nodePath, removePodLogs } from './node-logs.ts';
import { type NodeFacts, objectSources, type PodSources, podSources } from './pod-sources.ts';
import { pullCredentials } from './pull-secrets.ts';
import { createTokenSource, type TokenSource } from './service-account-tokens.ts';
import { followsObjects, prepareVolumes, refreshVolumes, releaseVolumes } from './volumes.ts';
import type { WorkerContext } from './worker-context.ts';

const VOLUME_REFRESH_MS = 60_000;
const SAVE_MS = 500;

export interface PodFilesOptions {
  readonly context: WorkerContext;
  /** The pod's folder. */
  readonly folder: string;
  readonly pod: () => Pod;
  readonly ips: () => readonly string[];
  /** Reports whether the pod runs and is to continue. */
  readonly isActive: () => boolean;
  /** Calls back once after this many milliseconds, unless the pod ends before. */
  readonly after: (ms: number, run: () => void) => void;
}

/** A pod's files on disk: volumes, hosts and resolv.conf. */
export class PodFiles {
  readonly #options: PodFilesOptions;
  readonly #folder: string;
  #volumes: Map<string, string> | null = null;
  #savedVersion = '';
  #isSaveDue = false;
  #isRemoved = false;
  /** Ends when no file of a volume is being written. */
  #refreshing: Promise<void> = Promise.resolve();
  /** Read for the volumes; the first start of a container uses them too. */
  #sources: PodSources | null = null;
  readonly #token: TokenSource;

  constructor(options: PodFilesOptions) {
    this.#options = options;
    this.#folder = options.folder;
    const { client, options: settings } = options.context;
    this.#token = createTokenSource({ client, pod: options.pod, clock: settings.clock });
    mkdirSync(this.volumesFolder, { recursive: true, mode: 0o755 });
  }

  get volumesFolder(): string {
    return join(this.#folder, 'volumes');
  }

  get arePrepared(): boolean {
    return this.#volumes !== null;
  }

  /** The part of the files that the start of a container needs. */
  get launch(): Pick<Launch, 'volumes' | 'environment' | 'files'> {
    return {
      volumes: this.#volumes ?? new Map<string, string>(),
      environment: () => this.#environment(),
      files: {
        resolvConf: join(this.#folder, 'resolv.conf'),
        hosts: join(this.#folder, 'hosts'),
        hostname: join(this.#folder, 'hostname'),
      },
    };
  }

  /** Saves the object, so that a pod whose object is deleted while no agent runs can still be ended gracefully. */
  savePod(): void {
    const { generation, deletionTimestamp } = this.#options.pod().metadata ?? {};
    const version = `${generation} ${deletionTimestamp}`;
    if (version !== this.#savedVersion) {
      this.#savedVersion = version;
      this.#writePod();
    } else if (!this.#isSaveDue) {
      // A status changes several times while a pod starts; a lost status is rebuilt.
      this.#isSaveDue = true;
      this.#options.after(SAVE_MS, () => {
        this.#isSaveDue = false;
        this.#writePod();
      });
    }
  }

  #writePod(): void {
    if (this.#isRemoved || !statSync(this.#folder, { throwIfNoEntry: false })) return;
    const pod = this.#options.pod();
    try {
      replaceFile(join(this.#folder, 'pod.json'), JSON.stringify(pod));
    } catch (error) {
      // On a full disk the pod keeps running, and the next change is saved again.
      const { logger } = this.#options.context.options;
      logger.warn({ pod: pod.metadata?.uid }, `failed to save the pod: ${messageOf(error)}`);
    }
  }

  /** Removes all files of the pod from the disk. */
  async remove(): Promise<void> {
    this.#isRemoved = true;
    await this.#refreshing;
    removePodLogs(this.#options.context.options.stateDir, this.#options.pod().metadata?.uid ?? '');
    await removeTree(this.#folder);
  }

  async prepare(): Promise<void> {
    const { context, pod: podNow, ips } = this.#options;
    const { clusterDns, fallbackDns = [], clusterDomain } = context.options;
    const pod = podNow();
    const { files } = this.launch;
    this.#sources = await this.#readSources();
    this.#volumes = await prepareVolumes(pod, this.volumesFolder, {
      ...this.#sources.volumes,
      token: this.#token,
      onMachine: (path) => nodePath(context.options.stateDir, path),
      image: (reference, pullPolicy) => this.#imageRoot(reference, pullPolicy),
    });
    const nodeResolvConf = readOptionalFile('/etc/resolv.conf') ?? '';
    writeFileSync(
      files.resolvConf,
      resolvConf(pod, { clusterDns, fallbackDns, clusterDomain, nodeResolvConf }),
    );
    const nodeHosts = readOptionalFile('/etc/hosts') ?? '';
    writeFileSync(files.hosts, hostsFile(pod, ips(), context.options, nodeHosts));
    writeFileSync(files.hostname, `${podHostname(pod, context.options.nodeName)}\n`);
    if ((pod.spec?.volumes ?? []).some(followsObjects)) {
      this.#refreshLater();
    }
  }

  /** Returns the unpacked files of a volume's image; pulls it if missing. */
  async #imageRoot(reference: string, pullPolicy: string | undefined): Promise<string> {
    const { images, client } = this.#options.context;
    const wanted = { image: reference, ...(pullPolicy ? { imagePullPolicy: pullPolicy } : {}) };
    const image =
      images.present(wanted) ??
      (await images.pull(wanted, (name) => pullCredentials(client, this.#options.pod(), name)));
    const [root, ...others] = image.layers;
    if (root !== undefined && others.length === 0) return root;
    throw new KubeletError('FailedMount', `image ${reference} cannot be a volume`, {
      op: 'mount volume',
      hint: 'use an image from a registry, or load one with fairlead image load',
    });
  }

  release(): void {
    releaseVolumes(this.#options.pod(), this.volumesFolder);
    this.#volumes = null;
  }

  #refreshLater(): void {
    const { context, pod, isActive, after } = this.#options;
    const refresh = async () => {
      try {
        const sources = await objectSources(context.reader, pod(), this.#nodeFacts);
        await refreshVolumes(pod(), this.volumesFolder, { ...sources, token: this.#token });
      } catch (error) {
        // The files are unchanged; the next round retries.
        context.options.logger.warn(
          { pod: pod().metadata?.uid },
          `failed to refresh volumes: ${messageOf(error)}`,
        );
      }
      if (isActive()) this.#refreshLater();
    };
    after(VOLUME_REFRESH_MS, () => {
      this.#refreshing = refresh();
    });
  }

  /** Reads the sources again: a restarted container sees the current configMaps and secrets. */
  async #environment(): Promise<EnvironmentSources> {
    const { environment } = this.#sources ?? (await this.#readSources());
    this.#sources = null;
    return environment;
  }

  #readSources(): Promise<PodSources> {
    const { context, pod } = this.#options;
    return podSources(context.reader, pod(), this.#nodeFacts);
  }

  get #nodeFacts(): NodeFacts {
    const { context, ips } = this.#options;
    return {
      podIps: ips(),
      hostIps: [...context.options.nodeAddresses],
      apiService: context.options.apiService,
      nodeName: context.options.nodeName,
      allocatable: context.allocatable,
    };
  }
}
