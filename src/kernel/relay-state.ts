/** A direction of a relayed connection: copies bytes, holds bytes that its target did not take, or has passed on the end. */
type DirectionState = 'copying' | 'holding' | 'ended';

/** The directions of a relay between two sockets: from the first to the second, and back. */
interface RelayState {
  readonly there: DirectionState;
  readonly back: DirectionState;
}
export type Direction = keyof RelayState;

/**
 * `blocked`: the target has not taken all bytes; `flushed`: it has taken those that were held; `end`: the source has ended
 * its data; `failure`: one of the sockets has failed or was reset.
 */
export type RelayEvent = 'blocked' | 'flushed' | 'end' | 'failure';

/**
 * The next step of a relay. `await`: wait until the target takes bytes, and read nothing until then; `read`: go on reading;
 * `shut`: pass on the end; `close`: close both sockets; `reset`: reset both.
 */
export type RelayAction = 'await' | 'read' | 'shut' | 'close' | 'reset' | 'nothing';

export const RELAY_BEGINS: RelayState = { there: 'copying', back: 'copying' };
const OPPOSITE = { there: 'back', back: 'there' } as const;

/** Returns the next state of a relay, and what to do. */
export function relayStep(
  state: RelayState,
  direction: Direction,
  event: RelayEvent,
): { readonly state: RelayState; readonly action: RelayAction } {
  const at = state[direction];
  switch (event) {
    case 'failure':
      return { state: { there: 'ended', back: 'ended' }, action: 'reset' };
    case 'blocked':
      if (at !== 'copying') break;
      return { state: { ...state, [direction]: 'holding' }, action: 'await' };
    case 'flushed':
      if (at !== 'holding') break;
      return { state: { ...state, [direction]: 'copying' }, action: 'read' };
    case 'end':
      // Nothing is read while bytes are held, so that the end cannot overtake them.
      if (at !== 'copying') break;
      return {
        state: { ...state, [direction]: 'ended' },
        action: state[OPPOSITE[direction]] === 'ended' ? 'close' : 'shut',
      };
  }
  return { state, action: 'nothing' };
}
