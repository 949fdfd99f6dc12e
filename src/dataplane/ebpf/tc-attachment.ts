import { existsSync } from 'node:fs';
import {
  attachClsact,
  type ClsactFilter,
  type ClsactHook,
  detachClsact,
  hasClsact,
} from '../../kernel/bpf/clsact.ts';
import { type BpfLink, keepLink, type LinkInfo, linkDevice, linkInfo } from '../../kernel/bpf/link.ts';
import { unpin } from '../../kernel/bpf/pin.ts';
import type { BpfProgram } from '../../kernel/bpf/program.ts';
import { inNetns, type NetnsRef } from '../../kernel/netns.ts';
import { listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import type { DeviceHook } from './hooks.ts';
import { linkPin, pinnedLinks } from './pins.ts';

/** Attaches programs to devices so that they outlive this process. */
export interface TcAttachment {
  /** Attaches a program, replacing the one of an earlier process. */
  attach(device: number, hook: DeviceHook, program: BpfProgram): void;
  isAttached(device: number, hook: DeviceHook): boolean;
  detach(device: number, hook: DeviceHook): void;
  /** Removes pins of other devices than these. */
  keepOnly(devices: ReadonlySet<number>): void;
  /** Closes this process's descriptors. */
  close(): void;
}

const DEVICE_LINK = /^device-([0-9]+)-/;

/** Returns true if a pinned link belongs to a device. */
export const isDeviceLink = (name: string): boolean => DEVICE_LINK.test(name);

/** Attaches programs by pinned links (tcx, Linux 6.6). */
export function tcxAttachment(pinPath: string, netns: NetnsRef | undefined): TcAttachment {
  const pinName = (device: number, hook: DeviceHook) => `device-${device}-${hook}`;
  const links = new Map<string, BpfLink>();
  const pathOf = (device: number, hook: DeviceHook) => linkPin(pinPath, pinName(device, hook));

  function closeLink(name: string): void {
    links.get(name)?.close();
    links.delete(name);
  }

  return {
    attach(device, hook, program) {
      const name = pinName(device, hook);
      closeLink(name);
      // The pin may belong to a removed device that had the same index.
      const isSame = (info: LinkInfo) => info.interface === device;
      const open = () => inNetns(netns, () => linkDevice(program.fd, device, hook));
      links.set(name, keepLink(pathOf(device, hook), program.fd, isSame, open).link);
    },
    isAttached(device, hook) {
      const link = links.get(pinName(device, hook));
      return link !== undefined && existsSync(pathOf(device, hook)) && linkInfo(link.fd).interface === device;
    },
    detach(device, hook) {
      unpin(pathOf(device, hook));
      closeLink(pinName(device, hook));
    },
    keepOnly(devices) {
      for (const name of pinnedLinks(pinPath)) {
        const device = DEVICE_LINK.exec(name)?.[1];
        if (device === undefined || devices.has(Number(device))) continue;
        unpin(linkPin(pinPath, name));
        closeLink(name);
      }
    },
    close() {
      for (const link of links.values()) link.close();
      links.clear();
    },
  };
}

const FILTERS: Readonly<Record<DeviceHook, readonly [ClsactHook, ClsactFilter]>> = {
  tcxIngress: ['ingress', { priority: 0x464c, handle: 0x464c, name: 'fairlead_ingress' }],
  tcxEgress: ['egress', { priority: 0x464c, handle: 0x464c, name: 'fairlead_egress' }],
};

/** Attaches programs as filters of tc(8). */
export function clsactAttachment(netns: NetnsRef | undefined): TcAttachment {
  return {
    attach(device, hook, program) {
      using socket = openRouteSocket(netns);
      attachClsact(socket, device, ...FILTERS[hook], program.fd);
    },
    isAttached(device, hook) {
      using socket = openRouteSocket(netns);
      return hasClsact(socket, device, ...FILTERS[hook]);
    },
    detach(device, hook) {
      using socket = openRouteSocket(netns);
      detachClsact(socket, device, ...FILTERS[hook]);
    },
    keepOnly() {
      // A filter ends with its device.
    },
    close() {},
  };
}

/** Removes all filters of this mode from a node's devices. */
export function removeFilters(netns: NetnsRef | undefined): void {
  using socket = openRouteSocket(netns);
  for (const { index } of listLinks(socket)) {
    for (const [hook, filter] of Object.values(FILTERS)) detachClsact(socket, index, hook, filter);
  }
}
