import { useEffect, useState } from 'preact/hooks';
import type { Fault, FaultKind, PlantedFault } from '../../cluster/faults.ts';
import { askServer, type ServerRefusal } from './ask-server.ts';
import type { ClusterData } from './cluster-store.ts';

interface KindText {
  readonly kind: FaultKind;
  readonly title: string;
  readonly effect: string;
  readonly target: 'pod' | 'node';
}

const KINDS: readonly KindText[] = [
  {
    kind: 'silent',
    title: 'Silence a pod',
    effect:
      'The pod gets no packets. Its Service notices that it does not answer, and other endpoints take over.',
    target: 'pod',
  },
  {
    kind: 'cut',
    title: 'Cut the link of a node',
    effect:
      'Nothing passes the uplink of the node, also not to the API server. After 40 seconds the node is not ready.',
    target: 'node',
  },
  {
    kind: 'slow',
    title: 'Slow down the link of a node',
    effect: 'Packets that leave or reach the node through its uplink are delayed by 200 ms.',
    target: 'node',
  },
  {
    kind: 'drain',
    title: 'Drain a node',
    effect: 'The node gets no new pods, and its pods move to other nodes if a controller creates them again.',
    target: 'node',
  },
];

/** Faults to plant, those that are planted, and the button that undoes all. */
export function FaultsPage({ data }: { data: ClusterData }) {
  const [faults, setFaults] = useState<readonly Fault[] | null>(null);
  const [message, setMessage] = useState<{ readonly text: string; readonly isBad: boolean } | null>(null);
  const [isBusy, setBusy] = useState(false);
  const run = async (work: () => Promise<string | null>) => {
    setBusy(true);
    try {
      const text = await work();
      setMessage(text === null ? null : { text, isBad: false });
    } catch (error) {
      const { message: text, hint } = error as ServerRefusal;
      setMessage({ text: hint === null ? text : `${text}: ${hint}`, isBad: true });
    }
    try {
      setFaults(await askServer<Fault[]>('GET faults'));
    } catch (error) {
      setMessage({ text: (error as ServerRefusal).message, isBad: true });
    }
    setBusy(false);
  };
  useEffect(() => {
    void run(async () => null);
  }, []);
  const plant = (kind: FaultKind, target: string) =>
    run(async () => {
      const { warnings } = await askServer<PlantedFault>('POST faults', { kind, target });
      return warnings.length === 0 ? null : warnings.join('; ');
    });
  const undo = () =>
    run(async () => {
      const undone = await askServer<Fault[]>('DELETE faults');
      return `Undone: ${undone.map(({ kind, target }) => `${kind} ${target}`).join(', ') || 'nothing'}`;
    });
  return (
    <div class="faults-page">
      <section class="card" aria-label="Planted faults">
        <div class="bar">
          <h2>Planted faults</h2>
          <div class="actions">
            <button
              type="button"
              class="main"
              disabled={isBusy || !faults || faults.length === 0}
              onClick={undo}
            >
              Undo all
            </button>
          </div>
        </div>
        {faults === null ? (
          <p class="quiet">Reading the faults…</p>
        ) : faults.length === 0 ? (
          <p class="quiet">None: the cluster is as it was. Plant one below, and watch the map.</p>
        ) : (
          <ul class="plain-list">
            {faults.map(({ kind, target }) => (
              <li key={`${kind} ${target}`}>
                <span class="bad">✕ {kind}</span> {target}
              </li>
            ))}
          </ul>
        )}
        <p role="status" class={message?.isBad ? 'bad' : 'quiet'}>
          {message?.text}
        </p>
        <p class="quiet">
          In a terminal: <code>{data.cluster?.command ?? 'fairlead'} fault</code>, and <code>fault undo</code>
          . “down” undoes them too.
        </p>
      </section>
      <div class="fault-kinds">
        {KINDS.map((text) => (
          <FaultForm key={text.kind} text={text} data={data} isBusy={isBusy} plant={plant} />
        ))}
      </div>
    </div>
  );
}

/** More would make the list slow; the command takes any name. */
const MAX_TARGETS = 500;

function FaultForm({
  text: { kind, title, effect, target },
  data,
  isBusy,
  plant,
}: {
  text: KindText;
  data: ClusterData;
  isBusy: boolean;
  plant: (kind: FaultKind, target: string) => void;
}) {
  const [chosen, setChosen] = useState('');
  const targets =
    target === 'node'
      ? [...data.nodes.keys()]
      : [...data.pods.values()]
          .filter(({ phase, isHostNetwork }) => phase === 'Running' && !isHostNetwork)
          .map(({ name }) => name)
          .sort()
          .slice(0, MAX_TARGETS);
  return (
    <form
      class="card"
      aria-label={title}
      onSubmit={(event) => {
        event.preventDefault();
        plant(kind, chosen);
      }}
    >
      <h2>{title}</h2>
      <p class="quiet">{effect}</p>
      <label>
        {target === 'pod' ? 'Pod' : 'Node'}
        <select value={chosen} required onChange={({ currentTarget }) => setChosen(currentTarget.value)}>
          <option value="">choose a {target}</option>
          {targets.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <div class="actions">
        <button type="submit" disabled={isBusy || chosen === ''}>
          {title}
        </button>
      </div>
    </form>
  );
}
