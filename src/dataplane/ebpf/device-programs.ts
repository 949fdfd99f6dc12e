import type { NetnsRef } from '../../kernel/netns.ts';
import { watchNetwork } from '../../kernel/rtnetlink/events.ts';
import { type Link, listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { DEVICE_HOOKS } from './hooks.ts';
import type { Programs } from './programs.ts';
import type { TcAttachment } from './tc-attachment.ts';

export interface DeviceProgramsOptions {
  readonly attachment: TcAttachment;
  readonly netns: NetnsRef | undefined;
  readonly logger: Logger;
}

/**
 * Keeps programs attached to all devices of a node that packets are routed through, following devices that appear later.
 * Ports of a bridge are left out: their packets pass the bridge device.
 */
export class DeviceAttachments {
  readonly #options: DeviceProgramsOptions;
  /** Indexes of the devices that have the programs. */
  readonly #covered = new Set<number>();
  readonly #watch: Disposable & { close(): void };
  #programs: Programs['devices'] = new Map();

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

  /** Replaces the attached programs; re-attaches where another program removed them. */
  use(programs: Programs['devices']): void {
    this.#programs = programs;
    this.#covered.clear();
    const devices = this.#devices();
    this.#options.attachment.keepOnly(new Set(devices.map(({ index }) => index)));
    for (const device of devices) this.#cover(device);
  }

  /** Returns the names of missing links, as `drift` reports them. */
  missing(): string[] {
    return this.#devices().flatMap(({ name, index }) =>
      DEVICE_HOOKS.filter((hook) => !this.#options.attachment.isAttached(index, hook)).map(
        (hook) => `device-${name}-${hook}`,
      ),
    );
  }

  /** Closes this process's descriptors; the programs stay attached. */
  close(): void {
    this.#watch.close();
    this.#options.attachment.close();
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
      for (const [hook, program] of this.#programs) this.#options.attachment.attach(index, hook, program);
      this.#covered.add(index);
    } catch (error) {
      // The device was removed again.
      if (hasCode(error, 'ENODEV')) return;
      this.#options.logger.warn(
        { device: device.name, error: messageOf(error) },
        'failed to attach programs to a device: pending connections are not rerouted there',
      );
    }
  }

  #drop(index: number): void {
    if (!this.#covered.delete(index)) return;
    for (const hook of DEVICE_HOOKS) this.#options.attachment.detach(index, hook);
  }
}

/** Returns true if routed packets pass the device with Ethernet headers. */
function isRouted({ name, mac, master }: Link): boolean {
  return name !== 'lo' && mac !== null && master === null;
}
