import { describeServer, type ServerId } from '../../kernel/ipvs/codec.ts';
import { addressBytes, FAMILY_NAMES } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import type { Frontend } from '../../service/model.ts';
import { poolsOf } from '../../service/pools.ts';
import { type FrontendPlan, planFrontend } from './frontend-plan.ts';
import type { Kernel, Programmed } from './programmed.ts';
import { serverKey } from './server-table.ts';

/** Plans a frontend; returns null, and records the failure, if it cannot be programmed. */
export async function makePlan(
  kernel: Kernel,
  state: Programmed,
  frontend: Frontend,
): Promise<FrontendPlan | null> {
  const standard = kernel.options.scheduler ?? state.node.ipvsScheduler;
  let scheduler = frontend.options.ipvsScheduler ?? standard;
  if (scheduler !== standard) {
    const error = await kernel.probe.check(scheduler);
    if (error) {
      // Served anyway: another scheduler is better than no Service. A retry would not help.
      state.failed.set(
        frontend.key,
        new FairleadError(`${error.message}; ${standard} is used instead`, {
          op: error.op,
          code: 'unsupported',
          ...(error.hint === undefined ? {} : { hint: error.hint }),
          object: error.object ?? scheduler,
        }),
      );
      scheduler = standard;
    }
  }
  const { address, family } = frontend;
  const length = family === 'ipv4' ? 4 : 16;
  let bad = address !== null && addressBytes(address)?.length !== length ? address : undefined;
  for (const { endpoints } of poolsOf(frontend)) {
    bad ??= endpoints.find(({ ip }) => addressBytes(ip)?.length !== length)?.ip;
  }
  if (bad !== undefined) {
    state.failed.set(
      frontend.key,
      new FairleadError(`${JSON.stringify(bad)} is not an ${FAMILY_NAMES[family]} address`, {
        op: 'program IPVS',
        code: 'EINVAL',
        object: bad,
      }),
    );
    return null;
  }
  const bound = address !== null && state.bound.has(address);
  try {
    const plan = planFrontend(frontend, { bound, marks: state.marks, aliases: state.aliases, scheduler });
    const taken = plan.servers.find(({ server: { id } }) => {
      // Listed in full syncs; new addresses are looked up.
      if (state.isListed && !('mark' in id) && !state.servers.has(id) && kernel.ipvs.hasServer(id)) {
        state.foreign.add(serverKey(id));
      }
      return state.foreign.has(serverKey(id));
    });
    if (!taken) return plan;
    state.failed.set(frontend.key, foreignError(taken.server.id));
    return null;
  } catch (error) {
    if (!hasCode(error, 'ENOSPC')) throw error;
    state.failed.set(frontend.key, error as FairleadError);
    return null;
  }
}

function foreignError(id: ServerId): FairleadError {
  const object = `virtual server ${describeServer(id)}`;
  return new FairleadError(`another program already has the ${object}`, {
    op: 'program IPVS',
    code: 'EEXIST',
    object,
    hint: 'remove it, or configure that program not to use this address',
  });
}
