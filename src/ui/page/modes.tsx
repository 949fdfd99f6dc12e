import { useEffect, useState } from 'preact/hooks';
import type { Explanation } from '../../observe/explain-view.ts';
import type { ModeView } from '../mode-operations.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import type { ClusterData } from './cluster-store.ts';
import { rateText } from './format.ts';
import type { View } from './link-state.ts';

/** What a mode does with the Service, as `explain` has found it while the mode was in use; or why it cannot be used. */
type Seen =
  | { readonly kind: 'explained'; readonly explanation: Explanation; readonly switchMs: number | null }
  | { readonly kind: 'refused'; readonly message: string; readonly hint: string | null };

const SETTLE_MS = 1000;
/** Rates are smoothed, and fall towards zero: lower ones count as none. */
const SHOWN_RATE = 0.05;

/** One Service in all modes, side by side: each column is what the nodes themselves say while they are in the mode. */
export function ModesPage({
  data,
  service,
  show,
}: {
  readonly data: ClusterData;
  readonly service: string | null;
  readonly show: (view: View) => void;
}) {
  const [modes, setModes] = useState<readonly ModeView[]>([]);
  const [seen, setSeen] = useState<ReadonlyMap<string, Seen>>(new Map());
  const [busy, setBusy] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [client, setClient] = useState('');
  const traffic = service === null ? undefined : data.traffic.services.get(service);
  const services = [...data.services.values()].filter(
    ({ type, addresses }) => type !== 'ExternalName' && addresses[0] !== 'None',
  );
  const chosen = services.find(({ name }) => name === service) ?? null;
  const pods = [...data.pods.values()].filter(
    ({ phase, isHostNetwork }) => phase === 'Running' && !isHostNetwork,
  );
  const served = new Set(chosen?.endpoints.map(({ pod }) => pod));
  const from = client || (pods.find(({ name }) => !served.has(name)) ?? pods[0])?.name || '';
  const port = chosen?.ports[0]?.replace(/:[0-9]+/, '') ?? '';
  // The Service rules that the client's packets meet are those of its node.
  const node = data.pods.get(from)?.node ?? '';
  const current = data.nodes.get(node)?.mode ?? data.cluster?.mode ?? null;

  useEffect(() => {
    askServer<ModeView[]>('GET modes').then(setModes, (error: ServerRefusal) => setProblem(error.message));
  }, []);
  useEffect(() => setSeen(new Map()), [service, from]);

  const explain = async (mode: string, switchMs: number | null) => {
    const explanation = await askServer<Explanation>('POST explain', { from, to: `svc/${service}:${port}` });
    setSeen((before) => new Map(before).set(mode, { kind: 'explained', explanation, switchMs }));
  };
  const canAsk = chosen !== null && from !== '' && port !== '';
  useEffect(() => {
    if (!canAsk || current === null || busy !== null || seen.has(current)) return;
    // After a switch, the node's new mode becomes known a moment later.
    const timer = setTimeout(() => {
      explain(current, null).catch((error: ServerRefusal) => setProblem(error.message));
    }, SETTLE_MS);
    return () => clearTimeout(timer);
  }, [canAsk, current, busy, seen, service, from]);

  /** Switches to each of the modes in turn; the last one stays. */
  const visit = async (wanted: readonly string[]) => {
    setProblem(null);
    for (const mode of wanted) {
      setBusy(mode);
      const begin = performance.now();
      try {
        await askServer('POST mode', { mode });
        await explain(mode, performance.now() - begin);
      } catch (error) {
        const { message, hint } = error as ServerRefusal;
        setSeen((before) => new Map(before).set(mode, { kind: 'refused', message, hint }));
      }
    }
    setBusy(null);
  };
  const names = modes.map(({ mode }) => mode);
  return (
    <div class="modes-page">
      <section class="card" aria-label="The Service">
        <div class="bar">
          <h2>One Service in every mode</h2>
          <div class="actions">
            <button
              type="button"
              class="main"
              disabled={!canAsk || busy !== null || current === null}
              onClick={() => visit([...names.filter((mode) => mode !== current), current ?? ''])}
            >
              {busy === null ? 'Visit all modes' : `Switching to ${busy}…`}
            </button>
          </div>
        </div>
        <div class="ends-form">
          <label>
            Service
            <select
              value={service ?? ''}
              disabled={busy !== null}
              onChange={({ currentTarget }) => show({ page: 'modes', service: currentTarget.value || null })}
            >
              <option value="">choose a Service</option>
              {services.map(({ name }) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
          <label>
            Client
            <select
              value={from}
              disabled={busy !== null}
              onChange={({ currentTarget }) => setClient(currentTarget.value)}
            >
              {pods.map(({ name }) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        </div>
        <p class="quiet">
          {chosen === null
            ? 'Choose a Service. Then switch the nodes to a mode, and see which objects of the kernel carry it out; open connections continue.'
            : 'A column is filled while the nodes are in its mode. “Visit all modes” switches to each in turn, and back; traffic continues.'}
        </p>
        {traffic && traffic.rate >= SHOWN_RATE && (
          <p>
            Requests of the last seconds: {rateText(traffic.rate)},{' '}
            <span class={traffic.failed < SHOWN_RATE ? 'good' : 'bad'}>
              {traffic.failed < SHOWN_RATE ? '✓ none failed' : `✕ ${rateText(traffic.failed)} failed`}
            </span>
          </p>
        )}
        {problem !== null && (
          <p role="alert" class="bad">
            {problem}
          </p>
        )}
      </section>
      <div class="mode-columns">
        {modes.map(({ mode, differences }) => (
          <section key={mode} class="card" aria-label={`${mode} mode`}>
            <div class="bar">
              <h2>{mode}</h2>
              {mode === current && busy === null ? (
                <span class="good">✓ in use</span>
              ) : (
                <button
                  type="button"
                  disabled={busy !== null || !canAsk}
                  aria-label={`Switch to ${mode}`}
                  onClick={() => visit([mode])}
                >
                  {busy === mode ? 'Switching…' : 'Switch'}
                </button>
              )}
            </div>
            <ModeSteps seen={seen.get(mode) ?? null} />
            {differences.map((text) => (
              <p key={text} class="quiet">
                {text}
              </p>
            ))}
          </section>
        ))}
      </div>
    </div>
  );
}

function ModeSteps({ seen }: { readonly seen: Seen | null }) {
  if (seen === null) return <p class="quiet">Not visited yet.</p>;
  if (seen.kind === 'refused') {
    return (
      <p class="bad">
        ✕ {seen.message}
        {seen.hint !== null && `: ${seen.hint}`}
      </p>
    );
  }
  const { explanation, switchMs } = seen;
  // The first step is the entry of the forwarding table, which is the same in every mode.
  const rules = explanation.steps.filter(({ subject }) => subject === 'rule').slice(1);
  const source = explanation.steps.find(({ subject }) => subject === 'source');
  return (
    <>
      <p class={explanation.verdict === 'delivered' ? 'good' : 'bad'}>
        {explanation.verdict === 'delivered' ? '✓' : '✕'} {explanation.verdict}
        {switchMs !== null && <span class="quiet"> · switched in {(switchMs / 1000).toFixed(1)} s</span>}
      </p>
      <ol class="mode-steps">
        {rules.map(({ ruleOrKey, text }) => (
          <li key={`${ruleOrKey} ${text}`}>
            <code>{ruleOrKey}</code>
            <span>{text}</span>
          </li>
        ))}
      </ol>
      {source && <p class="quiet">{source.text}</p>}
    </>
  );
}
