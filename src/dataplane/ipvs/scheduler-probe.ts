import type { IpvsConnection } from '../../kernel/ipvs/connection.ts';
import { FAMILY_NAMES, type IPFamily } from '../../lib/address.ts';
import { errorCode } from '../../lib/error-codes.ts';
import { FairleadError } from '../../lib/errors.ts';
import { SCHEDULERS } from './schedulers.ts';

/** Checks whether the kernel has a scheduler, by creating a virtual server for a mark that no packet has. */
export interface SchedulerProbe {
  /** Returns null if the scheduler can be used, otherwise the reason. Caches positive results. */
  check(name: string): Promise<FairleadError | null>;
}

/** `known`: the names of existing schedulers. */
export function createSchedulerProbe(
  connection: IpvsConnection,
  families: readonly IPFamily[],
  mark: number,
  known: readonly string[] = Object.keys(SCHEDULERS),
): SchedulerProbe {
  const usable = new Set<string>();

  async function probe(name: string, family: IPFamily): Promise<FairleadError | null> {
    const id = { family, mark };
    const add = connection.batch();
    add.addServer({ id, scheduler: name, schedulerFlags: 0, persistenceSeconds: null });
    const [refusal] = await connection.commit(add);
    // EEXIST: left by a run that was interrupted.
    if (!refusal || refusal.code === 'EEXIST') {
      const remove = connection.batch();
      remove.deleteServer(id);
      await connection.commit(remove);
      return null;
    }
    switch (refusal.code) {
      case 'ENOENT':
        return new FairleadError(`this kernel does not have the IPVS scheduler ${name}`, {
          op: 'choose IPVS scheduler',
          code: 'no-scheduler',
          object: `module ip_vs_${name}`,
          hint: `load it with "modprobe ip_vs_${name}", or choose another scheduler`,
        });
      case 'EAFNOSUPPORT':
        return new FairleadError(`this kernel's IPVS does not support ${FAMILY_NAMES[family]}`, {
          op: 'set up IPVS',
          code: 'no-ipvs-family',
          hint: 'it needs a kernel built with CONFIG_IP_VS_IPV6; use another mode here',
        });
      default:
        return new FairleadError(`failed to create an IPVS virtual server: ${refusal.code}`, {
          op: 'set up IPVS',
          code: errorCode(refusal.code),
          hint: 'run as root, with CAP_NET_ADMIN',
        });
    }
  }

  return {
    async check(name) {
      if (usable.has(name)) return null;
      if (!known.includes(name)) {
        return new FairleadError(`no such IPVS scheduler: ${JSON.stringify(name)}`, {
          op: 'choose IPVS scheduler',
          code: 'no-scheduler',
          object: name,
          hint: `use one of ${known.join(', ')}`,
        });
      }
      for (const family of families) {
        const error = await probe(name, family);
        if (error) return error;
      }
      usable.add(name);
      return null;
    },
  };
}
