import type { ModeFacts, ModeSection } from '../../modes/comparison.ts';
import type { Explanation } from '../../observe/explanation.ts';

/** Longer lists are closed at first. */
const MANY_LINES = 8;

/** The largest values of all modes: the full width of a bar. */
export interface Largest {
  readonly objects: number;
  readonly lookups: number;
}

export const objectsOf = ({ counts }: ModeFacts): number => counts.reduce((sum, { count }) => sum + count, 0);

/** The result of a switch to a mode in this page: its duration, or why it was refused. */
export interface Switched {
  readonly ms: number | null;
  readonly refusal: string | null;
}

/** One mode: where it translates, what that costs, and the Service's objects, as the mode's own tools print them. */
export function ModeColumn({
  facts,
  largest,
  switched,
  explanation,
  isBusy,
  isSwitching,
  onSwitch,
}: {
  readonly facts: ModeFacts;
  readonly largest: Largest;
  readonly switched: Switched | null;
  /** The answer of `explain` for the client's packet; only in the mode in use. */
  readonly explanation: Explanation | null;
  readonly isBusy: boolean;
  readonly isSwitching: boolean;
  readonly onSwitch: () => void;
}) {
  const { mode, isInUse, unavailable, firstPacket, sections } = facts;
  const { least, most } = firstPacket;
  return (
    <section class={`card${isInUse ? ' in-use' : ''}`} aria-label={`${mode} mode`}>
      <div class="bar">
        <h2>{mode}</h2>
        {isInUse && !isBusy ? (
          <span class="good">✓ in use</span>
        ) : (
          <button type="button" disabled={isBusy} aria-label={`Switch to ${mode}`} onClick={onSwitch}>
            {isSwitching ? 'Switching…' : 'Switch'}
          </button>
        )}
      </div>
      <ModeState facts={facts} switched={switched} />
      {unavailable !== null && (
        <p class="bad">
          ✕ Not available on this node: {unavailable.reason}
          {unavailable.fix !== null && `. Fix: ${unavailable.fix}`}
        </p>
      )}
      <dl class="mode-facts">
        <dt>Translates at</dt>
        <dd>{facts.translatedAt}</dd>
        <dt>First packet</dt>
        <dd>
          <Bar
            of={most}
            largest={largest.lookups}
            text={least === most ? `${most}` : `${least} to ${most}`}
          />
          {firstPacket.text}
        </dd>
        <dt>Later packets</dt>
        <dd>{facts.laterPackets}</dd>
        <dt>Objects</dt>
        <dd>
          <Bar of={objectsOf(facts)} largest={largest.objects} text={`${objectsOf(facts)}`} />
          {facts.counts.map(({ kind, count }) => `${kind}: ${count}`).join(', ')}
        </dd>
        <dt>Size</dt>
        <dd>{facts.sizes.map(({ what, bytes }) => `${bytes} bytes (${what})`).join(', ')}</dd>
      </dl>
      {[...facts.differences, ...facts.notes].map((text) => (
        <p key={text} class="quiet">
          {text}
        </p>
      ))}
      {explanation !== null && <ClientSteps explanation={explanation} />}
      {sections.map((one) => (
        <Section key={`${one.kind} ${one.command} ${one.isShared}`} section={one} />
      ))}
      <KubeProxyRules sections={facts.kubeProxy ?? []} />
    </section>
  );
}

function ModeState({ facts, switched }: { readonly facts: ModeFacts; readonly switched: Switched | null }) {
  const { isInUse, drifts, unavailable } = facts;
  const time = switched?.ms == null ? '' : ` · switched in ${(switched.ms / 1000).toFixed(1)} s`;
  if (switched?.refusal) return <p class="bad">✕ {switched.refusal}</p>;
  if (isInUse && drifts !== null) {
    return drifts.length === 0 ? (
      <p class="good">
        ✓ matches the kernel
        <span class="quiet">{time}</span>
      </p>
    ) : (
      <p class="bad">✕ the kernel differs: {drifts.join('; ')}</p>
    );
  }
  return unavailable === null ? <p class="quiet">What this mode would write{time}</p> : null;
}

function Bar({
  of,
  largest,
  text,
}: {
  readonly of: number;
  readonly largest: number;
  readonly text: string;
}) {
  return (
    <span class="measure">
      <b>{text}</b>
      <svg aria-hidden="true" viewBox="0 0 100 6" preserveAspectRatio="none">
        <rect width={largest === 0 ? 0 : (100 * of) / largest} height="6" />
      </svg>
    </span>
  );
}

function Section({ section }: { readonly section: ModeSection }) {
  const { kind, command, lines, count, isShared } = section;
  const left = count - lines.length;
  return (
    <details class="mode-objects" open={!isShared && count <= MANY_LINES}>
      <summary>
        <code>{command}</code> {kind}: {count}
        {isShared && ', shared by Services'}
      </summary>
      <ul>
        {lines.map((line) => (
          <li key={line}>
            <code>{line}</code>
          </li>
        ))}
      </ul>
      {left > 0 && <p class="quiet">and {left} more</p>}
    </details>
  );
}

/** The objects that kube-proxy would write in the same mode, for comparison with those above. */
function KubeProxyRules({ sections }: { readonly sections: readonly ModeSection[] }) {
  const own = sections.filter(({ isShared }) => !isShared).reduce((sum, { count }) => sum + count, 0);
  if (own === 0) return null;
  return (
    <section class="kube-proxy" aria-label="kube-proxy would write">
      <h3>kube-proxy would write {own} rules</h3>
      {sections.map((one) => (
        <Section key={`${one.command} ${one.isShared}`} section={one} />
      ))}
    </section>
  );
}

function ClientSteps({ explanation }: { readonly explanation: Explanation }) {
  // The first step is the entry of the forwarding table, which is the same in every mode.
  const rules = explanation.steps.filter(({ subject }) => subject === 'rule').slice(1);
  const source = explanation.steps.find(({ subject }) => subject === 'source');
  return (
    <details class="mode-objects">
      <summary>
        the client's packet:{' '}
        <span class={explanation.verdict === 'delivered' ? 'good' : 'bad'}>
          {explanation.verdict === 'delivered' ? '✓' : '✕'} {explanation.verdict}
        </span>
      </summary>
      <ol class="mode-steps">
        {rules.map(({ ruleOrKey, text }) => (
          <li key={`${ruleOrKey} ${text}`}>
            <code>{ruleOrKey}</code>
            <span>{text}</span>
          </li>
        ))}
      </ol>
      {source && <p class="quiet">{source.text}</p>}
    </details>
  );
}
