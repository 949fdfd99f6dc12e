import type { BpfProgram } from '../../kernel/bpf/program.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { watchNetwork } from '../../kernel/rtnetlink/events.ts';
import { type Link, listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { DeviceWay } from './device-ways.ts';
import { type DeviceHook, HOOKS } from './layout.ts';

export type DevicePrograms = ReadonlyMap<DeviceHook, BpfProgram>;

const DEVICE_HOOKS = Object.values(HOOKS).flatMap(({ place, attach }) =>
  place === 'device' ? [attach as DeviceHook] : [],
);

export interface DeviceProgramsOptions {
  readonly way: DeviceWay;
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
}

/**
 * Has programs work at all of a node's devices where packets are routed, those that come later too. Ports of a bridge
 * are none of them: their packets are met at the bridge, once.
 */
export class DeviceAttachments {
  readonly #options: DeviceProgramsOptions;
  /** Devices that have the programs. */
  readonly #covered = new Set<number>();
  readonly #watch: Disposable & { close(): void };
  #programs: DevicePrograms = new Map();

  constructor(options: DeviceProgramsOptions) {
    this.#options = options;
    this.#watch = watchNetwork(
      ['link'],
      (event) => {
        if (this.#programs.size === 0) return;
        if (event.kind === 'overrun') this.use(this.#programs);
        else if (event.kind !== 'link') return;
        else if (event.gone) this.#drop(event.link.index);
        else this.#cover(event.link);
      },
      options.netns,
    );
  }

  /** Puts these programs in place of those of before, and in place again where others took them away. */
  use(programs: DevicePrograms): void {
    this.#programs = programs;
    this.#covered.clear();
    const devices = this.#devices();
    this.#options.way.keepOnly(new Set(devices.map(({ index }) => index)));
    for (const device of devices) this.#cover(device);
  }

  /** Names of the places where a program should be and is not. */
  missing(): string[] {
    return this.#devices().flatMap(({ name, index }) =>
      DEVICE_HOOKS.filter((hook) => !this.#options.way.isAttached(index, hook)).map(
        (hook) => `device-${name}-${hook}`,
      ),
    );
  }

  /** Releases what this process holds; the programs go on. */
  close(): void {
    this.#watch.close();
    this.#options.way.close();
    this.#covered.clear();
    this.#programs = new Map();
  }

  #devices(): Link[] {
    using socket = openRouteSocket(this.#options.netns);
    return listLinks(socket).filter(isRouted);
  }

  #cover(device: Link): void {
    const { index } = device;
    if (!isRouted(device)) {
      this.#drop(index);
      return;
    }
    if (this.#covered.has(index)) return;
    try {
      for (const [hook, program] of this.#programs) this.#options.way.attach(index, hook, program);
      this.#covered.add(index);
    } catch (error) {
      // It is gone again; or the next verification tells.
      if (hasCode(error, 'ENODEV')) return;
      this.#options.logger.warn({ device: device.name, error: messageOf(error) }, 'no rescue at a device');
    }
  }

  #drop(index: number): void {
    if (!this.#covered.delete(index)) return;
    for (const hook of DEVICE_HOOKS) this.#options.way.detach(index, hook);
  }
}

/** Packets that are routed pass by it, with Ethernet headers. */
function isRouted({ name, mac, master }: Link): boolean {
  return name !== 'lo' && mac !== null && master === null;
}
