import { closeSync, mkdirSync, openSync, rmdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { linkCgroup } from '../../kernel/bpf/link.ts';
import { createMap, type MapDefinition, NO_PREALLOC } from '../../kernel/bpf/map.ts';
import { makePinDirectory, pin } from '../../kernel/bpf/pin.ts';
import { attachProgram, loadProgram } from '../../kernel/bpf/program.ts';
import { addressBytes } from '../../lib/address.ts';
import type { BpfPlace } from '../bpf-leftovers.ts';

/**
 * State like that of a stopped product that translates Services at sockets. It imitates the layout: names of programs,
 * where they are attached, and paths of pins, as the products' sources and documentation have them (Cilium 1.14 to 1.18:
 * programs cil_sock4_connect … with links pinned below cilium/socketlb/links/cgroup, maps below tc/globals; Calico: programs
 * calico_connect_v4 … without pinned links, maps cali_v4_nat_fe3 as longest-prefix tries). The programs are ours: they
 * rewrite the address of a connection that the map has, from any port, to one endpoint.
 */
export interface ImitatedProxy {
  /** The kernel keeps 15 characters. */
  readonly program: string;
  readonly map: string;
  readonly kind: 'hash' | 'lpmTrie';
  /** Folder of the pinned link; null: attached without a link. */
  readonly links: string | null;
}

export const CILIUM_LIKE: ImitatedProxy = {
  program: 'cil_sock4_connect',
  map: 'cilium_lb4_services_v2',
  kind: 'hash',
  links: 'cilium/socketlb/links/cgroup',
};

export const CALICO_LIKE: ImitatedProxy = {
  program: 'calico_connect_v4',
  map: 'cali_v4_nat_fe3',
  kind: 'lpmTrie',
  links: null,
};

/** A Service's address and the endpoint that its connections go to. */
export type Translation = readonly [address: string, endpoint: string, port: number];

/** Leaves the state of such a proxy: it goes on translating. `dispose` removes what is still there. */
export function leaveProxy(
  { program: name, map: mapName, kind, links }: ImitatedProxy,
  { group, pins }: BpfPlace,
  translations: readonly Translation[],
): { dispose(): void } {
  if (group === null) throw new Error('there is no cgroup v2 hierarchy');
  const isTrie = kind === 'lpmTrie';
  const definition: MapDefinition = {
    name: mapName,
    kind,
    keySize: isTrie ? 8 : 4,
    valueSize: 8,
    maxEntries: 1024,
    flags: isTrie ? NO_PREALLOC : 0,
  };
  const globals = join(pins, 'tc', 'globals');
  const linkFolder = links === null ? null : join(pins, links);
  makePinDirectory(globals);
  if (linkFolder !== null) mkdirSync(linkFolder, { recursive: true });
  const map = createMap(definition);
  const programmed = loadProgram({
    name,
    type: 'sockAddress',
    attach: 'connect4',
    instructions: translating(map.fd, isTrie),
    license: 'Apache-2.0',
  });
  const groupFd = openSync(group, 'r');
  try {
    for (const [address, endpoint, port] of translations) {
      const key = addressBytes(address) ?? new Uint8Array(4);
      const value = new Uint8Array(8);
      value.set(addressBytes(endpoint) ?? []);
      new DataView(value.buffer).setUint16(4, port);
      map.update(isTrie ? Uint8Array.of(32, 0, 0, 0, ...key) : key, value);
    }
    pin(map.fd, join(globals, mapName));
    if (linkFolder === null) attachProgram(programmed.fd, groupFd, 'connect4');
    else {
      const link = linkCgroup(programmed.fd, group, 'connect4');
      pin(link.fd, join(linkFolder, name));
      link.close();
    }
  } finally {
    closeSync(groupFd);
    programmed.close();
    map.close();
  }
  return {
    dispose() {
      rmSync(join(globals, mapName), { force: true });
      if (links === null || linkFolder === null) return removeEmpty(pins, 'tc/globals');
      rmSync(join(linkFolder, name), { force: true });
      removeEmpty(pins, 'tc/globals');
      removeEmpty(pins, links);
    },
  };
}

/** Removes folders of a BPF file system, whose entries cannot be removed recursively. */
function removeEmpty(root: string, path: string): void {
  for (let folder = path; folder !== '.'; folder = dirname(folder)) {
    try {
      rmdirSync(join(root, folder));
    } catch {
      return;
    }
  }
}

/** Returns a program for connect(2) that looks up the address and, if the map has it, replaces address and port. */
function translating(mapFd: number, isTrie: boolean): Uint8Array {
  const LOOKUP = 1;
  const USER_IP4 = 4;
  const USER_PORT = 24;
  const words: number[][] = [
    [0xbf, 0x16, 0, 0], // r6 = r1
    [0x61, 0x62, USER_IP4, 0], // r2 = ctx->user_ip4
    [0x63, 0x2a, -4, 0], // key = r2
    [0x62, 0x0a, -8, 32], // prefix length of a trie's key
    [0xbf, 0xa2, 0, 0], // r2 = r10
    [0x07, 0x02, 0, isTrie ? -8 : -4], // r2 += offset of the key
    [0x18, 0x11, 0, mapFd], // r1 = map
    [0, 0, 0, 0],
    [0x85, 0, 0, LOOKUP],
    [0x15, 0x00, 4, 0], // if r0 == 0 goto out
    [0x61, 0x01, 0, 0], // r1 = value's address
    [0x63, 0x16, USER_IP4, 0],
    [0x61, 0x01, 4, 0], // r1 = value's port
    [0x63, 0x16, USER_PORT, 0],
    [0xb7, 0, 0, 1], // out: r0 = 1
    [0x95, 0, 0, 0],
  ];
  const bytes = new Uint8Array(words.length * 8);
  const view = new DataView(bytes.buffer);
  words.forEach(([code = 0, registers = 0, offset = 0, immediate = 0], i) => {
    view.setUint8(i * 8, code);
    view.setUint8(i * 8 + 1, registers);
    view.setInt16(i * 8 + 2, offset, true);
    view.setInt32(i * 8 + 4, immediate, true);
  });
  return bytes;
}
