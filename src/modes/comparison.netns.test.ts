import { describe } from 'node:test';
import { createIptables } from '../dataplane/iptables/iptables.ts';
import { createNftables } from '../dataplane/nftables/nftables.ts';
import { openEbpf } from '../dataplane/testing/open-ebpf.ts';
import { createUserspace } from '../dataplane/userspace/userspace.ts';
import { type OpenedMode, testRendered } from './testing/rendered-suite.ts';

const families = ['ipv4'] as const;
const MODES: readonly OpenedMode[] = [
  { mode: 'nftables', open: ({ netns }) => createNftables({ families, netns }) },
  { mode: 'iptables', open: ({ netns }) => createIptables({ families, netns }) },
  {
    mode: 'userspace',
    open: ({ netns }) => createUserspace({ families, netns }),
    listenerOf: (dataplane) => {
      const opened = (dataplane as ReturnType<typeof createUserspace>).listeners();
      return (pool) => opened.find((one) => one.pool === pool)?.at ?? null;
    },
  },
  { mode: 'ebpf', open: (place) => openEbpf({ families, ...place }) },
];
for (const one of MODES) describe(one.mode, () => testRendered(one));
