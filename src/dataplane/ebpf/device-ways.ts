import { closeSync } from 'node:fs';
import {
  attachClsact,
  type ClsactHook,
  type ClsactSlot,
  detachClsact,
  hasClsact,
} from '../../kernel/bpf/clsact.ts';
import { type BpfLink, linkDevice, linkInfo, openLink, updateLink } from '../../kernel/bpf/link.ts';
import { openPin, pin, unpin } from '../../kernel/bpf/pin.ts';
import type { BpfProgram } from '../../kernel/bpf/program.ts';
import { inNetns, type NetnsRef } from '../../kernel/netns.ts';
import { listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import type { DeviceHook } from './layout.ts';
import { linkPin, pinnedLinks } from './pins.ts';

/** How programs are attached to devices so that they go on without this process. */
export interface DeviceWay {
  /** In place of what an earlier process attached there. */
  attach(device: number, hook: DeviceHook, program: BpfProgram): void;
  isAttached(device: number, hook: DeviceHook): boolean;
  detach(device: number, hook: DeviceHook): void;
  /** Forgets what is not at one of these devices. */
  keepOnly(devices: ReadonlySet<number>): void;
  /** Releases what this process holds. */
  close(): void;
}

/** What the programs at a device are for: flows that are rescued, at all of them; traffic from outside, at one. */
export type DevicePurpose = 'device' | 'uplink';

const PINS: Readonly<Record<DevicePurpose, RegExp>> = {
  device: /^device-([0-9]+)-/,
  uplink: /^uplink-([0-9]+)-/,
};

/** Whether a pinned link is one of a device. */
export const isDeviceLink = (name: string): boolean => PINS.device.test(name);
/** Whether it is one of an uplink's programs. */
export const isUplinkLink = (name: string): boolean => PINS.uplink.test(name);

/** Pinned links (tcx, Linux 6.6). */
export function tcxWay(
  pinPath: string,
  netns: NetnsRef | undefined,
  purpose: DevicePurpose = 'device',
): DeviceWay {
  const pinName = (device: number, hook: DeviceHook) => `${purpose}-${device}-${hook}`;
  const links = new Map<string, BpfLink>();
  const pathOf = (device: number, hook: DeviceHook) => linkPin(pinPath, pinName(device, hook));

  function open(device: number, hook: DeviceHook, program: BpfProgram): BpfLink {
    const path = pathOf(device, hook);
    const pinned = openPin(path);
    if (pinned !== null) {
      if (linkInfo(pinned).interface === device) {
        updateLink(pinned, program.fd);
        return openLink(pinned);
      }
      // Of an earlier device of the same number.
      closeSync(pinned);
      unpin(path);
    }
    const attach = () => linkDevice(program.fd, device, hook);
    const link = netns === undefined ? attach() : inNetns(netns, attach);
    pin(link.fd, path);
    return link;
  }

  return {
    attach(device, hook, program) {
      const name = pinName(device, hook);
      links.get(name)?.close();
      links.delete(name);
      links.set(name, open(device, hook, program));
    },
    isAttached(device, hook) {
      const link = links.get(pinName(device, hook));
      const pinned = openPin(pathOf(device, hook));
      if (pinned !== null) closeSync(pinned);
      return link !== undefined && pinned !== null && linkInfo(link.fd).interface === device;
    },
    detach(device, hook) {
      unpin(pathOf(device, hook));
      const name = pinName(device, hook);
      links.get(name)?.close();
      links.delete(name);
    },
    keepOnly(devices) {
      for (const name of pinnedLinks(pinPath)) {
        const device = PINS[purpose].exec(name)?.[1];
        if (device === undefined || devices.has(Number(device))) continue;
        unpin(linkPin(pinPath, name));
        links.get(name)?.close();
        links.delete(name);
      }
    },
    close() {
      for (const link of links.values()) link.close();
      links.clear();
    },
  };
}

type Slots = Readonly<Record<DeviceHook, readonly [ClsactHook, ClsactSlot]>>;

const slots = (number: number, name: string): Slots => ({
  tcxIngress: ['ingress', { priority: number, handle: number, name: `${name}_ingress` }],
  tcxEgress: ['egress', { priority: number, handle: number, name: `${name}_egress` }],
});

const CLSACT: Readonly<Record<DevicePurpose, Slots>> = {
  device: slots(0x464c, 'fairlead'),
  uplink: slots(0x464b, 'fairlead_uplink'),
};

/** Filters of tc(8). */
export function clsactWay(netns: NetnsRef | undefined, purpose: DevicePurpose = 'device'): DeviceWay {
  const places = CLSACT[purpose];
  return {
    attach(device, hook, program) {
      using socket = openRouteSocket(netns);
      attachClsact(socket, device, ...places[hook], program.fd);
    },
    isAttached(device, hook) {
      using socket = openRouteSocket(netns);
      return hasClsact(socket, device, ...places[hook]);
    },
    detach(device, hook) {
      using socket = openRouteSocket(netns);
      detachClsact(socket, device, ...places[hook]);
    },
    keepOnly(devices) {
      // Where packets are not rescued any more the programs find nothing; what comes from outside they would still take.
      if (purpose === 'uplink') removeFiltersOf(places, netns, devices);
    },
    close() {},
  };
}

/** Takes every filter of this mode away from a node's devices. */
export function removeFilters(netns: NetnsRef | undefined): void {
  removeFiltersOf(CLSACT.device, netns, new Set());
  removeUplinkFilters(netns);
}

/** Those of an uplink. */
export function removeUplinkFilters(netns: NetnsRef | undefined): void {
  removeFiltersOf(CLSACT.uplink, netns, new Set());
}

function removeFiltersOf(places: Slots, netns: NetnsRef | undefined, kept: ReadonlySet<number>): void {
  using socket = openRouteSocket(netns);
  for (const { index } of listLinks(socket)) {
    if (kept.has(index)) continue;
    for (const [hook, slot] of Object.values(places)) detachClsact(socket, index, hook, slot);
  }
}
