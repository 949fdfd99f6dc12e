import { useEffect, useRef, useState } from 'preact/hooks';
import type { ClusterData } from './cluster-store.ts';
import type { View } from './link-state.ts';
import { openShell, type ShellConnection, type ShellEnd } from './shell-connection.ts';
import type { Terminal } from './terminal.ts';

type ShellView = Extract<View, { page: 'shell' }>;
type State = 'connecting' | 'open' | ShellEnd;

/** A shell in a container of a pod. */
export function ShellPage({
  data,
  view,
  show,
  isDark,
}: {
  data: ClusterData;
  view: ShellView;
  show: (view: View) => void;
  isDark: boolean;
}) {
  const [name, setName] = useState(view.pod ?? '');
  const [number, setNumber] = useState(0);
  useEffect(() => setName(view.pod ?? ''), [view.pod]);
  const running = [...data.pods.values()].filter(({ phase }) => phase === 'Running').map((pod) => pod.name);
  const containers = data.pods.get(view.pod ?? '')?.containers ?? [];
  const submit = (event: Event) => {
    event.preventDefault();
    if (name === view.pod) setNumber(number + 1);
    else show({ page: 'shell', pod: name, container: null });
  };
  return (
    <div class="shell-page">
      <form class="card ends-form" onSubmit={submit}>
        <label>
          Pod
          <select value={name} required onChange={({ currentTarget }) => setName(currentTarget.value)}>
            <option value="">choose a pod</option>
            {name !== '' && !running.includes(name) && <option value={name}>{name} (not running)</option>}
            {running.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
        <label>
          Container
          <select
            value={view.container ?? containers[0] ?? ''}
            disabled={containers.length < 2}
            onChange={({ currentTarget }) => show({ ...view, container: currentTarget.value })}
          >
            {containers.length === 0 && <option value="">the first</option>}
            {containers.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
        <button type="submit" class="main" disabled={name === ''}>
          {name === view.pod ? 'Open again' : 'Open a shell'}
        </button>
      </form>
      {view.pod === null ? (
        <p class="card quiet">
          {running.length === 0
            ? 'No pod is running: start one, for example with kubectl run.'
            : 'Choose a pod. A shell is opened in it, as kubectl exec does; it ends when you leave this view.'}
        </p>
      ) : (
        <Shell
          key={`${view.pod} ${view.container} ${number}`}
          pod={view.pod}
          container={view.container}
          isDark={isDark}
        />
      )}
    </div>
  );
}

function Shell({ pod, container, isDark }: { pod: string; container: string | null; isDark: boolean }) {
  const [state, setState] = useState<State>('connecting');
  const [isReadable, setReadable] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  const leave = useRef<HTMLButtonElement>(null);
  const terminal = useRef<Terminal | null>(null);
  useEffect(() => {
    let isLeft = false;
    let shell: ShellConnection | null = null;
    const open = async () => {
      const { openTerminal } = await loadTerminal();
      if (isLeft || frame.current === null) return;
      const opened = openTerminal(frame.current, {
        isDark,
        onInput: (bytes) => shell?.send(bytes),
        onResize: (size) => shell?.resize(size),
        onLeave: () => leave.current?.focus(),
      });
      terminal.current = opened;
      shell = openShell({
        pod,
        container,
        size: opened.size,
        onOpen() {
          setState('open');
          opened.focus();
        },
        onOutput: (bytes, onShown) => opened.write(bytes, onShown),
        onEnd: setState,
      });
    };
    open().catch((error: Error) => setState({ kind: 'failed', message: error.message }));
    return () => {
      isLeft = true;
      shell?.close();
      terminal.current?.close();
      terminal.current = null;
    };
  }, [pod, container]);
  useEffect(() => terminal.current?.setDark(isDark), [isDark]);
  useEffect(() => terminal.current?.setReadable(isReadable), [isReadable, state]);
  return (
    <section class="card" aria-label={`Shell in ${pod}`}>
      <div class="bar">
        <p role="status" class={typeof state === 'string' || isGood(state) ? '' : 'bad'}>
          {stateText(state, pod)}
        </p>
        <div class="actions">
          <button
            ref={leave}
            type="button"
            aria-pressed={isReadable}
            onClick={() => setReadable(!isReadable)}
          >
            Screen reader
          </button>
        </div>
      </div>
      <div class="terminal" ref={frame} />
      <p class="quiet">
        Escape, then Tab: the keyboard leaves the terminal. Leaving this view or closing the page ends the
        shell.
      </p>
    </section>
  );
}

/** Loads the terminal, a file of its own: only this view needs it. */
function loadTerminal(): Promise<typeof import('./terminal.ts')> {
  return import(new URL('page.terminal.js', document.baseURI).href);
}

const isGood = (end: ShellEnd): boolean => end.kind === 'exited' && end.code === 0;

function stateText(state: State, pod: string): string {
  if (state === 'connecting') return `Opening a shell in ${pod}…`;
  if (state === 'open') return `● ${pod}`;
  switch (state.kind) {
    case 'exited':
      return state.code === 0
        ? '✓ The shell has ended: exit code 0'
        : `✕ The shell has ended: exit code ${state.code}${state.code > 128 ? ` (signal ${state.code - 128})` : ''}`;
    case 'failed':
      return `✕ The shell has ended: ${state.message}`;
    case 'lost':
      return '✕ The connection to “fairlead ui” is lost: is the command still running?';
  }
}
