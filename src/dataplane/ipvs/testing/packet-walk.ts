import { PROTOCOL_NUMBER } from '../../../kernel/protocol-numbers.ts';
import { addressBytes, familyOf, formatAddress, type IPFamily } from '../../../lib/address.ts';
import type { Packet } from '../../../service/model.ts';
import {
  createWalk,
  type Outcome,
  type State,
  type Step,
  UNTOUCHED,
} from '../../testing/rules-interpreter.ts';
import { serverKey } from '../server-table.ts';
import type { KernelState } from './kernel-state.ts';

/**
 * Walks a flow's first packet through the kernel as netfilter and IPVS would, following every choice.
 * `inInterface` null: sent by a process of this node.
 */
export function walkPacket(kernel: KernelState, packet: Packet, inInterface: string | null): Outcome[] {
  const family = familyOf(packet.destination) ?? 'ipv4';
  const table = kernel.tables[family];
  const isLocal = (state: State): boolean => {
    const address = state.target ? formatAddress(state.target.address) : packet.destination;
    if (address === '::1' || address.startsWith('127.')) return true;
    return kernel.bound.has(address) || kernel.others.has(address);
  };
  const arriving = createWalk(table, packet, { inInterface, isLocal });
  const leaving = createWalk(table, packet, { inInterface: null, isLocal });

  /** Continues with the states that a chain accepts. */
  const then = (steps: readonly Step[], next: (state: State) => Outcome[]): Outcome[] =>
    steps.flatMap(({ state, end }) =>
      end === 'drop' || end === 'reject' ? [outcome(state, end)] : next(state),
    );
  const last = (state: State): Outcome[] =>
    then(leaving('postrouting', state), (end) => [outcome(end, end.target === null ? 'pass' : 'forward')]);

  /** Applies IPVS to a packet for this node; once translated, it passes the output hook. */
  function balance(state: State): Outcome[] {
    const found = serverOf(kernel, packet, family, state);
    if (!found) return last(state);
    const reals = found.reals.filter(({ weight }) => weight > 0);
    if (reals.length === 0) return [outcome(state, 'reject')];
    return reals.flatMap(({ address, port }) => {
      const target = { address: addressBytes(address) ?? new Uint8Array(0), port };
      const chosen = { ...state, odds: state.odds / reals.length, target };
      return then(leaving('translated', chosen), (a) => then(leaving('output', a), last));
    });
  }

  if (inInterface === null) {
    return then(leaving('translated', UNTOUCHED), (a) =>
      then(leaving('redirect-output', a), (b) => then(leaving('output', b), balance)),
    );
  }
  return then(arriving('redirect-prerouting', UNTOUCHED), (a) =>
    isLocal(a) ? then(arriving('input', a), balance) : then(arriving('forward', a), last),
  );
}

/** Returns the server of the packet's mark, otherwise that of its destination, in the order of IPVS. */
function serverOf({ servers }: KernelState, packet: Packet, family: IPFamily, state: State) {
  const marked = state.mark === 0 ? undefined : servers.get(serverKey({ family, mark: state.mark }));
  if (marked) return marked;
  const address = state.target ? formatAddress(state.target.address) : packet.destination;
  const port = state.target?.port ?? packet.port;
  return servers.get(serverKey({ family, protocol: PROTOCOL_NUMBER[packet.protocol], address, port }));
}

function outcome({ odds, target, masquerade }: State, action: Outcome['action']): Outcome {
  return { odds, action, target: target && `${formatAddress(target.address)} ${target.port}`, masquerade };
}
