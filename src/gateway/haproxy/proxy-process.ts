import {
  closeSync,
  constants,
  mkdirSync,
  openSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { readAtMost } from '../../kernel/bounded-file.ts';
import { spawnLight } from '../../kernel/child-process.ts';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../../kernel/process-identity.ts';
import { ended, NEW_RECORD, type ProcessRecord, started } from '../../kernel/process-record.ts';
import { replaceFile } from '../../kernel/replace-file.ts';
import { type Clock, pause } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { createHeldSockets, type Place } from './held-sockets.ts';
import { MAIN_FILE } from './rendering.ts';
import { askProxy } from './runtime-socket.ts';

/** The first inherited socket in a proxy; rendered as "fd@3". */
export const FIRST_SOCKET = 3;

export interface ProxyProcessOptions {
  /** The path of HAProxy. */
  readonly program: string;
  /** A folder of this proxy alone. */
  readonly folder: string;
  readonly memoryMiB: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called when the proxy has begun or ended to answer. */
  readonly onChange: () => void;
}

/** One configuration, with the sockets that its bind lines name in their order. */
export interface Configuration {
  readonly files: ReadonlyMap<string, string>;
  readonly places: readonly Place[];
}

/**
 * The proxy of a node: one process at a time that takes new connections, and earlier ones that finish theirs. It outlives
 * this process, whose successor adopts it.
 */
export interface ProxyProcess {
  readonly isAnswering: boolean;
  /** Where the process that takes new connections listens. */
  readonly places: readonly Place[];
  /** Why it has ended last; null: it has not. */
  readonly lastExit: string | null;
  /** Opens the sockets that are missing, and reports which are open. */
  openSockets: (places: readonly Place[]) => {
    readonly open: readonly Place[];
    readonly problems: readonly string[];
  };
  /**
   * Starts a process with this configuration; then the one before it accepts no more. Resolves to null, or to HAProxy's reason
   * for refusing it, and then nothing has changed. One call at a time.
   */
  replace(configuration: Configuration): Promise<string | null>;
  /** Sends a command to the process that takes new connections. */
  ask(command: string): Promise<string>;
  /** Ends all processes, after their requests, and closes the sockets. */
  stop(): void;
  /** Resolves when all processes that this one has started or adopted have ended. */
  ended(): Promise<void>;
  /** Leaves the processes running. */
  close(): void;
}

/** The file by which a successor finds the running process. */
interface RunningRecord {
  readonly identity: ProcessIdentity;
  readonly generation: number;
  readonly places: readonly Place[];
}

interface Run extends RunningRecord {
  readonly folder: string;
  readonly configuration: Configuration | null;
}

const READY_MS = 30_000;
const READY_POLL_MS = 4;
const POLL_MS = 250;
const FINISH_POLLS = 50;
/** Processes that finish their connections: more than these, and the oldest is ended. */
const MAX_FINISHING = 16;
const MAX_LOG_BYTES = 1024 * 1024;

/** Prepares the proxy of a node, and adopts what an earlier process has left. */
export function createProxyProcess(options: ProxyProcessOptions): ProxyProcess {
  const { program, folder, memoryMiB, clock, logger, onChange } = options;
  const sockets = createHeldSockets();
  const recordFile = join(folder, 'proxy.json');
  let run: Run | null = null;
  let record: ProcessRecord = NEW_RECORD;
  let generation = 0;
  let finishing: Run[] = [];
  const children = new Set<Promise<void>>();
  let isAnswering = false;
  let isClosed = false;
  let cancelPoll = () => {};

  mkdirSync(folder, { recursive: true, mode: 0o700 });
  adopt();
  watch();

  function adopt() {
    const text = readOptionalFile(recordFile);
    if (text === null) return;
    try {
      const found = JSON.parse(text) as RunningRecord;
      generation = found.generation;
      if (!isRunning(found.identity)) return;
      sockets.adopt(found.identity.pid, found.places, FIRST_SOCKET);
      run = { ...found, folder: folderOf(found.generation), configuration: null };
      record = started(NEW_RECORD, found.identity, clock.now());
      isAnswering = true;
      logger.info({ pid: found.identity.pid }, 'adopted the running proxy');
    } catch (error) {
      logger.warn({}, `failed to adopt the running proxy: ${messageOf(error)}`);
    }
  }

  function folderOf(number: number): string {
    return join(folder, `g${number}`);
  }

  async function start(configuration: Configuration): Promise<Run | string> {
    const number = ++generation;
    const place = folderOf(number);
    rmSync(place, { recursive: true, force: true });
    mkdirSync(place, { mode: 0o700 });
    for (const [name, text] of configuration.files) writeFileSync(join(place, name), text, { mode: 0o600 });
    const log = join(place, 'log');
    const out = openSync(log, constants.O_CREAT | constants.O_APPEND | constants.O_WRONLY, 0o600);
    let child: ReturnType<typeof spawnLight>;
    try {
      const descriptors = configuration.places.map((one) => sockets.descriptor(one));
      child = spawnLight(program, ['-db', '-C', place, '-f', MAIN_FILE, '-m', String(memoryMiB)], {
        descriptors: ['ignore', out, out, ...descriptors],
        session: true,
      });
    } catch (error) {
      rmSync(place, { recursive: true, force: true });
      return `${program} did not start: ${messageOf(error)}`;
    } finally {
      closeSync(out);
    }
    let exit: number | null = null;
    const exited = child.exited.then((code) => {
      exit = code;
    });
    children.add(exited);
    exited.finally(() => children.delete(exited));
    const identity = identify(child.pid);
    const deadline = clock.now() + READY_MS;
    while (exit === null && identity !== null) {
      try {
        await askProxy(place, 'show version', clock);
        const next: Run = {
          identity,
          generation: number,
          places: configuration.places,
          folder: place,
          configuration,
        };
        exited.then(() => onExit(next, exit ?? 0));
        return next;
      } catch (error) {
        logger.debug({}, messageOf(error));
      }
      if (clock.now() > deadline) {
        signalProcess(identity, 'SIGKILL');
        break;
      }
      await Promise.race([exited, pause(clock, READY_POLL_MS)]);
    }
    // A timer, since a child does not keep this process running.
    while (exit === null) await Promise.race([exited, pause(clock, READY_POLL_MS)]);
    const reason = alertsOf(log) || `it ended with status ${exit}`;
    rmSync(place, { recursive: true, force: true });
    return reason;
  }

  function onExit(ending: Run, code: number) {
    if (run === ending) died(`status ${code}`);
    else retire(ending);
  }

  function retire(ended: Run) {
    finishing = finishing.filter((one) => one !== ended);
    rmSync(ended.folder, { recursive: true, force: true });
  }

  function died(reason: string) {
    if (isClosed || run === null) return;
    const { configuration, folder: place } = run;
    const alerts = alertsOf(join(place, 'log'));
    run = null;
    isAnswering = false;
    record = ended(record, `${reason}${alerts === '' ? '' : `: ${alerts}`}`, clock.now());
    logger.warn({ failures: record.failures }, `the proxy ended: ${record.lastExit?.reason}`);
    rmSync(place, { recursive: true, force: true });
    onChange();
    if (configuration === null) return;
    // New connections wait in the sockets meanwhile.
    cancelPoll();
    const wait = record.failures <= 1 ? 0 : (record.startAt ?? 0) - clock.now();
    cancelPoll = clock.after(Math.max(0, wait), () => {
      if (run !== null || isClosed) return;
      start(configuration).then((next) => {
        if (typeof next === 'string') {
          record = ended(record, next, clock.now());
          logger.error({}, `the proxy did not start again: ${next}`);
        } else if (run === null && !isClosed) take(next);
        else signalProcess(next.identity, 'SIGKILL');
        watch();
      });
    });
  }

  function take(next: Run) {
    const before = run;
    run = next;
    record = started(record, next.identity, clock.now());
    isAnswering = true;
    const { identity, generation: number, places } = next;
    replaceFile(recordFile, JSON.stringify({ identity, generation: number, places } satisfies RunningRecord));
    sockets.keep(places);
    if (before) {
      finishing.push(before);
      signalProcess(before.identity, 'SIGUSR1');
    }
    while (finishing.length > MAX_FINISHING) {
      const oldest = finishing.shift();
      if (oldest) signalProcess(oldest.identity, 'SIGTERM');
    }
    onChange();
  }

  /** Waits until a process that was told to finish takes no more connections, as far as it answers. */
  async function refused({ folder: place, identity }: Run): Promise<void> {
    for (let left = FINISH_POLLS; left > 0 && isRunning(identity); left--) {
      try {
        if ((await askProxy(place, 'show info', clock)).includes('\nStopping: 1')) return;
      } catch {
        // It has closed this socket, after those of the gateways.
        return;
      }
      await pause(clock, READY_POLL_MS);
    }
  }

  /** Notices the end of adopted processes, which this one did not start, and bounds the logs. */
  function watch() {
    cancelPoll();
    if (isClosed) return;
    cancelPoll = clock.after(POLL_MS, watch);
    for (const one of finishing) if (!isRunning(one.identity)) retire(one);
    if (run === null) return;
    if (!isRunning(run.identity)) died('it ended');
    else boundLog(join(run.folder, 'log'));
  }

  return {
    get isAnswering() {
      return isAnswering;
    },
    get places() {
      return run?.places ?? [];
    },
    get lastExit() {
      return record.lastExit?.reason ?? null;
    },
    openSockets: sockets.open,
    async replace(configuration) {
      const next = await start(configuration);
      if (typeof next === 'string') return next;
      const before = run;
      take(next);
      if (before) await refused(before);
      return null;
    },
    async ask(command) {
      return await askProxy(run?.folder ?? folder, command, clock);
    },
    stop() {
      const all = run === null ? finishing : [...finishing, run];
      run = null;
      isAnswering = false;
      for (const one of all) signalProcess(one.identity, 'SIGUSR1');
      finishing = all;
      sockets.keep([]);
      rmSync(recordFile, { force: true });
    },
    async ended() {
      while (children.size > 0) await Promise.race([...children, pause(clock, READY_POLL_MS)]);
      while ([...finishing, ...(run ? [run] : [])].some(({ identity }) => isRunning(identity)))
        await pause(clock, READY_POLL_MS);
    },
    close() {
      isClosed = true;
      cancelPoll();
    },
  };
}

/** Returns the alerts of a proxy's log as one line: "[ALERT] (PID) : config : parsing [haproxy.cfg:6] : …". */
function alertsOf(log: string): string {
  return startOf(log)
    .split('\n')
    .filter((line) => line.startsWith('[ALERT]') && !line.includes('Fatal errors found'))
    .map((line) => line.replace(/^\[ALERT\]\s+\(\d+\) : (?:config : )?/, '').trim())
    .slice(0, 8)
    .join('; ');
}

function startOf(log: string): string {
  try {
    return readAtMost(log, 64 * 1024).bytes.toString();
  } catch {
    // Its folder has been removed.
    return '';
  }
}

function boundLog(path: string): void {
  try {
    if (statSync(path).size > MAX_LOG_BYTES) truncateSync(path);
  } catch {
    // Its folder has been removed.
  }
}
