import { closeSync } from 'node:fs';
import { type BpfLink, linkDevice, linkInfo, openLink, updateLink } from '../../kernel/bpf/link.ts';
import { openPin, pin, unpin } from '../../kernel/bpf/pin.ts';
import type { BpfProgram } from '../../kernel/bpf/program.ts';
import { inNetns, type NetnsRef } from '../../kernel/netns.ts';
import { watchNetwork } from '../../kernel/rtnetlink/events.ts';
import { type Link, listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { type DeviceHook, HOOKS } from './layout.ts';
import { linkPin, pinnedLinks } from './pins.ts';

export type DevicePrograms = ReadonlyMap<DeviceHook, BpfProgram>;

const DEVICE_HOOKS = Object.values(HOOKS).flatMap(({ place, attach }) =>
  place === 'device' ? [attach as DeviceHook] : [],
);
const PIN = /^device-([0-9]+)-(tcxIngress|tcxEgress)$/;

const pinName = (device: number, hook: DeviceHook) => `device-${device}-${hook}`;

export interface DeviceProgramsOptions {
  readonly netns: NetnsRef | undefined;
  readonly pinPath: string;
  readonly logger: Logger;
}

/**
 * Has programs work at all of a node's devices where packets are routed, those that come later too. Ports of a bridge
 * are none of them: their packets are met at the bridge, once.
 */
export class DeviceAttachments {
  readonly #options: DeviceProgramsOptions;
  readonly #links = new Map<string, BpfLink>();
  readonly #watch: Disposable & { close(): void };
  #programs: DevicePrograms = new Map();

  constructor(options: DeviceProgramsOptions) {
    this.#options = options;
    this.#watch = watchNetwork(
      ['link'],
      (event) => {
        if (this.#programs.size === 0) return;
        if (event.kind === 'overrun') this.#cover(this.#devices());
        else if (event.kind === 'link' && !event.gone) this.#cover([event.link]);
        else if (event.kind === 'link') this.#drop(event.link.index);
      },
      options.netns,
    );
  }

  /** Puts these programs in place of those of before, and in place again where others took them away. */
  use(programs: DevicePrograms): void {
    this.#programs = programs;
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
    const devices = this.#devices();
    const indexes = new Set(devices.map(({ index }) => index));
    // Of devices that went while nobody looked, or have become ports of a bridge.
    for (const name of pinnedLinks(this.#options.pinPath)) {
      const index = PIN.exec(name)?.[1];
      if (index !== undefined && !indexes.has(Number(index))) unpin(linkPin(this.#options.pinPath, name));
    }
    this.#cover(devices);
  }

  /** Names of the pins that should be there and are not, or lead nowhere. */
  missing(): string[] {
    return this.#devices().flatMap(({ index }) =>
      DEVICE_HOOKS.map((hook) => pinName(index, hook)).filter((name) => {
        const link = this.#links.get(name);
        const pinned = openPin(linkPin(this.#options.pinPath, name));
        if (pinned !== null) closeSync(pinned);
        return !link || pinned === null || linkInfo(link.fd).interface !== index;
      }),
    );
  }

  /** Releases what this process holds; the programs go on. */
  close(): void {
    this.#watch.close();
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
    this.#programs = new Map();
  }

  #devices(): Link[] {
    using socket = openRouteSocket(this.#options.netns);
    return listLinks(socket).filter(isRouted);
  }

  #cover(devices: readonly Link[]): void {
    for (const device of devices) {
      if (!isRouted(device)) {
        this.#drop(device.index);
        continue;
      }
      for (const [hook, program] of this.#programs) {
        const name = pinName(device.index, hook);
        if (this.#links.has(name)) continue;
        try {
          this.#links.set(name, this.#attach(name, device.index, hook, program));
        } catch (error) {
          // It is gone again; or the next verification tells.
          if (!hasCode(error, 'ENODEV')) {
            this.#options.logger.warn(
              { device: device.name, error: messageOf(error) },
              'no rescue at a device',
            );
          }
        }
      }
    }
  }

  #attach(name: string, index: number, hook: DeviceHook, program: BpfProgram): BpfLink {
    const path = linkPin(this.#options.pinPath, name);
    const pinned = openPin(path);
    if (pinned !== null) {
      if (linkInfo(pinned).interface === index) {
        updateLink(pinned, program.fd);
        return openLink(pinned);
      }
      // Of an earlier device of the same number.
      closeSync(pinned);
      unpin(path);
    }
    const attach = () => linkDevice(program.fd, index, hook);
    const { netns } = this.#options;
    const link = netns === undefined ? attach() : inNetns(netns, attach);
    pin(link.fd, path);
    return link;
  }

  #drop(index: number): void {
    for (const hook of DEVICE_HOOKS) {
      const name = pinName(index, hook);
      const link = this.#links.get(name);
      if (!link) continue;
      this.#links.delete(name);
      unpin(linkPin(this.#options.pinPath, name));
      link.close();
    }
  }
}

/** Packets that are routed pass by it, with Ethernet headers. */
function isRouted({ name, mac, master }: Link): boolean {
  return name !== 'lo' && mac !== null && master === null;
}
