import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { controlGroupRoot } from '../../kernel/control-group.ts';
import { inNetns } from '../../kernel/netns.ts';
import type { ProxyVariables } from '../../kube/proxy-environment.ts';
import { withAuthorities } from '../../kube/public-authorities.ts';
import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { createKeyedSemaphore } from '../../lib/keyed-semaphore.ts';
import type { Logger } from '../../lib/log.ts';
import type { LayerLimits } from '../../runtime/images/layer-limits.ts';
import { parseReference } from '../../runtime/images/reference.ts';
import type { RegistryCredentials } from '../../runtime/images/registry.ts';
import type { RegistryMirror } from '../../runtime/images/registry-endpoint.ts';
import { KubeletError } from '../../runtime/kubelet-error.ts';
import type { PullElsewhere } from '../../runtime/options.ts';
import { isOfCluster, type MachinePulls, type PullSettings, readPullSettings } from './machine-pulls.ts';
import { boundMemory, ownMemory } from './memory-bound.ts';

/** The request to the process that pulls one image: a line of JSON on its standard input. */
export interface PullRequest {
  readonly name: string;
  /** The folder of the image store. */
  readonly folder: string;
  readonly limits: Partial<LayerLimits>;
  readonly credentials: RegistryCredentials | null;
  readonly plainHttp: readonly string[];
  readonly proxies: ProxyVariables | null;
  readonly mirrors: readonly RegistryMirror[];
}

/** Its answer: a line of JSON on its standard output. `problem` null: the image is in the store. */
export interface PullAnswer {
  readonly problem: string | null;
  readonly hint: string | null;
}

export interface ImagePullerOptions {
  readonly pulls: MachinePulls;
  /** The program that reads a PullRequest. */
  readonly program: { readonly file: string; readonly words: readonly string[] };
  readonly folder: string;
  readonly limits: Partial<LayerLimits>;
  readonly plainHttp: readonly string[];
  readonly cgroupParent: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Ends the pulls. */
  readonly signal: AbortSignal;
}

/** Pulls of a node that run at once, in all and from one registry; others wait in order. */
const PARALLEL = { limit: 4, perKey: 3 };
/** The whole of one pull, unpacking included: what was received is kept for the next. */
const MAX_MS = 30 * 60_000;
/** The same while a pull from another registry waits for its place: longer than unpacking may take. */
const MAX_AWAITED_MS = 20 * 60_000;
/** Its memory: a thread of it unpacks (see file-thread.ts). */
const MAX_MEMORY = 768 * 1024 * 1024;
const LOOK_MS = 1000;
const MAX_ANSWER_BYTES = 64 * 1024;

/**
 * Returns how a node of a local cluster pulls images: each by a process of its own in the machine's network, which ends with the
 * pull. Registries at addresses of the cluster's networks, and all of a cluster that may not enter that network, are asked by the
 * node itself.
 */
export function createImagePuller(options: ImagePullerOptions): PullElsewhere {
  const turns = createKeyedSemaphore(PARALLEL);
  return async (name, credentials, here) => {
    const { pulls, signal } = options;
    const settings = readPullSettings(pulls.settings);
    const { registry } = parseReference(name);
    if (isOfCluster(registry, settings.networks)) return await here();
    if (pulls.network === null) return await hereOrAsUser(name, here);
    return await turns.run(registry, async () => {
      signal.throwIfAborted();
      const isAwaited = () => turns.isAwaited(registry);
      await pullInMachine(name, credentials, settings, { ...options, isAwaited });
    });
  };
}

/** Pulls through the node's own network, where an ordinary user's cluster has no way out. */
async function hereOrAsUser(name: string, here: () => Promise<void>): Promise<void> {
  try {
    await here();
  } catch (error) {
    throw pullError(
      name,
      messageOf(error),
      `the nodes of a cluster without root have no way to registries: fairlead image pull ${name}, and the pod starts`,
    );
  }
}

async function pullInMachine(
  name: string,
  credentials: RegistryCredentials | null,
  { proxies, mirrors, authorities }: PullSettings,
  options: ImagePullerOptions & { readonly isAwaited: () => boolean },
): Promise<void> {
  const { program, folder, limits, plainHttp, signal } = options;
  // Opened again: the thread enters the namespace and returns.
  const child = inNetns({ path: `/proc/self/fd/${options.pulls.network}` }, () =>
    spawn(program.file, [...program.words], {
      cwd: '/',
      stdio: ['pipe', 'pipe', 'inherit'],
      env: withAuthorities(process.env, authorities),
    }),
  );
  let cause: string | null = null;
  const kill = (why: string) => {
    cause ??= why;
    child.kill('SIGKILL');
  };
  const ended = exitOf(child);
  const stop = () => kill('the node ends');
  signal.addEventListener('abort', stop);
  const cancel = watch(child, options, kill);
  try {
    const request: PullRequest = { name, folder, limits, credentials, plainHttp, proxies, mirrors };
    const { stdin, stdout } = child as ChildProcess & { stdin: Writable; stdout: Readable };
    // EPIPE: it has ended, which `ended` reports.
    stdin.on('error', () => {});
    // Its end of the pipe closes with this process: it ends then.
    stdin.write(`${JSON.stringify(request)}\n`);
    const [text, reason] = await Promise.all([textOf(stdout, () => kill('its answer is too long')), ended]);
    const answer = cause === null ? parsed(text) : null;
    if (answer === null)
      throw pullError(name, `the process that pulls it was ended: ${cause ?? reason}`, null);
    if (answer.problem !== null) throw pullError(name, answer.problem, answer.hint);
  } finally {
    cancel();
    signal.removeEventListener('abort', stop);
    child.kill('SIGKILL');
  }
}

/** Ends a pull that takes too long, or too much memory, which the kernel bounds where it can. */
function watch(
  child: ChildProcess,
  { clock, cgroupParent, logger, isAwaited }: ImagePullerOptions & { readonly isAwaited: () => boolean },
  kill: (why: string) => void,
): () => void {
  const { pid } = child;
  if (pid === undefined) return () => {};
  const root = controlGroupRoot();
  if (root !== null)
    boundMemory(root, cgroupParent, pid, MAX_MEMORY).catch((error: unknown) =>
      logger.debug({}, `the kernel does not bound the memory of a pull: ${messageOf(error)}`),
    );
  let left = MAX_MS;
  const look = () => {
    cancel = clock.after(LOOK_MS, look);
    left -= LOOK_MS;
    if (left <= 0) kill(`it took more than ${MAX_MS / 60_000} minutes`);
    if (left <= MAX_MS - MAX_AWAITED_MS && isAwaited())
      kill(`it took more than ${MAX_AWAITED_MS / 60_000} minutes while pulls from other registries waited`);
    if (ownMemory(pid) > MAX_MEMORY) kill(`it used more than ${MAX_MEMORY >> 20} MiB of memory`);
  };
  let cancel = clock.after(LOOK_MS, look);
  return () => cancel();
}

function exitOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(messageOf(error)));
    child.once('exit', (code, name) => resolve(name ? `killed by ${name}` : `exited with status ${code}`));
  });
}

async function textOf(stream: Readable, tooLong: () => void): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) {
      tooLong();
      // Closes the stream: what still writes to it fails.
      break;
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parsed(text: string): PullAnswer | null {
  try {
    return JSON.parse(text) as PullAnswer;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

function pullError(name: string, message: string, hint: string | null): KubeletError {
  const prefix = 'failed to pull image';
  const text = message.startsWith(prefix) ? message : `${prefix} ${JSON.stringify(name)}: ${message}`;
  return new KubeletError('ErrImagePull', text, {
    op: 'pull image',
    object: name,
    ...(hint === null ? {} : { hint }),
  });
}
