// Programs a map received over IPC, confirms it, and waits to be killed.
import type { ServiceMap } from '../../../service/model.ts';
import { openEbpf } from '../../testing/open-ebpf.ts';

process.once('message', async (message) => {
  const { map, netns, cgroup, pinPath } = message as {
    map: ServiceMap;
    netns: string;
    cgroup: string;
    pinPath: string;
  };
  await openEbpf({ families: ['ipv4', 'ipv6'], netns, cgroup, pinPath }).sync(map);
  process.send?.('programmed');
});
setInterval(() => {}, 1 << 30);
