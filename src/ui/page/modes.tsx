import { useEffect, useState } from 'preact/hooks';
import type { ModeComparison } from '../../modes/comparison.ts';
import type { Explanation } from '../../observe/explanation.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import type { ClusterData } from './cluster-store.ts';
import { rateText } from './format.ts';
import type { View } from './link-state.ts';
import { ModeColumn, objectsOf, type Switched } from './mode-column.tsx';

const SETTLE_MS = 1000;
/** Rates are smoothed, and fall towards zero: lower ones count as none. */
const SHOWN_RATE = 0.05;

/** One Service in all modes, side by side, as the client's node renders it; the mode in use as its kernel has it. */
export function ModesPage({
  data,
  service,
  show,
}: {
  readonly data: ClusterData;
  readonly service: string | null;
  readonly show: (view: View) => void;
}) {
  const [comparison, setComparison] = useState<ModeComparison | null>(null);
  const [explanation, setExplanation] = useState<Explanation | null>(null);
  const [switched, setSwitched] = useState<ReadonlyMap<string, Switched>>(new Map());
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
  const node = data.pods.get(from)?.node ?? null;
  const mode = (node === null ? null : data.nodes.get(node)?.mode) ?? data.cluster?.mode ?? null;
  const [namespace = '', name = ''] = service?.split('/') ?? [];
  // The rules follow the Service and its endpoints.
  const content = JSON.stringify(chosen);

  const ask = async () => {
    setComparison(await askServer<ModeComparison>('POST modes', { namespace, name, node }));
    if (from === '' || port === '') setExplanation(null);
    else setExplanation(await askServer<Explanation>('POST explain', { from, to: `svc/${service}:${port}` }));
  };
  useEffect(() => setSwitched(new Map()), [service, node]);
  useEffect(() => {
    if (chosen === null) setComparison(null);
    if (chosen === null || busy !== null) return;
    let isOver = false;
    const refresh = () =>
      ask().then(
        () => isOver || setProblem(null),
        (error: ServerRefusal) => isOver || setProblem(error.message),
      );
    void refresh();
    // The node programs a change a moment later than the page learns of it.
    const timer = setTimeout(refresh, SETTLE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [service, from, node, mode, content, busy]);

  /** Switches to each of the modes in turn; the last one stays. */
  const visit = async (wanted: readonly string[]) => {
    setProblem(null);
    for (const one of wanted) {
      setBusy(one);
      const begin = performance.now();
      let result: Switched;
      try {
        await askServer('POST mode', { mode: one });
        result = { ms: performance.now() - begin, refusal: null };
        await ask();
      } catch (error) {
        const { message, hint } = error as ServerRefusal;
        result = { ms: null, refusal: hint === null ? message : `${message}: ${hint}` };
      }
      setSwitched((before) => new Map(before).set(one, result));
    }
    setBusy(null);
  };
  const modes = comparison?.modes ?? [];
  const largest = {
    objects: Math.max(0, ...modes.map(objectsOf)),
    lookups: Math.max(0, ...modes.map(({ firstPacket }) => firstPacket.most)),
  };
  const current = comparison?.mode ?? null;
  const others = modes.flatMap((one) => (one.mode === current || one.unavailable ? [] : [one.mode]));
  return (
    <div class="modes-page">
      <section class="card" aria-label="The Service">
        <div class="bar">
          <h2>One Service in every mode</h2>
          <div class="actions">
            <button
              type="button"
              class="main"
              disabled={busy !== null || current === null}
              onClick={() => visit([...others, current ?? ''])}
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
          {comparison === null
            ? 'Choose a Service to see which objects implement it in each mode, and what they cost. Nothing is switched.'
            : `${comparison.endpoints} endpoints behind ${comparison.frontends.join(', ')}, as ${comparison.node} renders them. Nothing is switched until you choose it; then traffic continues.`}
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
        {modes.map((facts) => (
          <ModeColumn
            key={facts.mode}
            facts={facts}
            largest={largest}
            switched={switched.get(facts.mode) ?? null}
            explanation={facts.isInUse ? explanation : null}
            isBusy={busy !== null}
            isSwitching={busy === facts.mode}
            onSwitch={() => visit([facts.mode])}
          />
        ))}
      </div>
    </div>
  );
}
