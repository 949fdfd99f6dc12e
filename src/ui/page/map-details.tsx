import type { ServiceView } from '../view.ts';
import type { ClusterData } from './cluster-store.ts';
import { baseName, edgeText, latencyText, rateText } from './format.ts';
import { type MapView, type View, viewLink } from './link-state.ts';
import { useSlots } from './slots.ts';
import type { LiveEdge } from './traffic.ts';
import { isFailure, VERDICTS } from './verdicts.ts';

/** Enough to fill a window: each costs time in the frame that draws the list. */
const MAX_EDGES = 24;
const MAX_ENDPOINTS = 40;

/** The facts of what the map shows: the chosen Service, and the live connections as text. */
export function MapDetails({
  data,
  view,
  edges,
  show,
}: {
  data: ClusterData;
  view: MapView;
  edges: readonly LiveEdge[];
  show: (view: View) => void;
}) {
  const service = view.service === null ? undefined : data.services.get(view.service);
  const ordered = edges.toSorted(
    (a, b) => Number(isFailure(b.verdict)) - Number(isFailure(a.verdict)) || b.rate - a.rate,
  );
  return (
    <aside class="details" aria-label="Details">
      {service ? (
        <ServiceFacts service={service} edges={ordered} show={show} view={view} />
      ) : (
        <Nodes data={data} />
      )}
      <h2>Live connections</h2>
      {ordered.length === 0 ? (
        <p class="quiet">None in the last 10 seconds.</p>
      ) : (
        <Edges edges={ordered.slice(0, MAX_EDGES)} />
      )}
      {ordered.length > MAX_EDGES && (
        <p class="quiet">
          and {(ordered.length - MAX_EDGES).toLocaleString('en')} more: choose a Service, or search
        </p>
      )}
      {data.traffic.omittedEdges > 0 && (
        <p class="quiet">
          {data.traffic.omittedEdges.toLocaleString('en')} quieter connections are counted by their Services
          only.
        </p>
      )}
    </aside>
  );
}

function Edges({ edges }: { edges: readonly LiveEdge[] }) {
  const slotOf = useSlots(edges.map(edgeId));
  return (
    <ul class="edges">
      {edges.map((edge) => (
        <Edge key={slotOf(edgeId(edge))} edge={edge} />
      ))}
    </ul>
  );
}

const edgeId = ({ client, service, endpoint, verdict }: LiveEdge): string =>
  `${client} ${service} ${endpoint} ${verdict}`;

function Edge({ edge }: { edge: LiveEdge }) {
  const { client, service, endpoint, verdict, rate, latencyMs, reason } = edge;
  const { mark, word } = VERDICTS[verdict];
  const target = service === null ? (endpoint ?? '?') : `svc/${service}`;
  return (
    <li class={isFailure(verdict) ? 'edge bad' : 'edge'}>
      <a
        href={viewLink({ page: 'path', from: client.replace(/^pod /, ''), to: target, family: 'any' })}
        title="Show the path of a packet"
      >
        <span class="ends">{edgeText(edge)}</span>
      </a>
      <span class="figures">
        <span class={isFailure(verdict) ? 'verdict bad' : 'verdict good'}>
          {mark} {word}
        </span>
        <span>{rateText(rate)}</span>
        {latencyMs !== null && <span>{latencyText(latencyMs)}</span>}
      </span>
      {reason !== null && <span class="reason">{reason}</span>}
    </li>
  );
}

function ServiceFacts({
  service,
  edges,
  show,
  view,
}: {
  service: ServiceView;
  edges: readonly LiveEdge[];
  show: (view: View) => void;
  view: MapView;
}) {
  const client = edges[0]?.client ?? '';
  return (
    <>
      <div class="title">
        <h2>{service.name}</h2>
        <button
          type="button"
          class="plain"
          aria-label="Close the details"
          onClick={() => show({ ...view, service: null })}
        >
          ×
        </button>
      </div>
      <dl>
        <dt>type</dt>
        <dd>{service.type}</dd>
        <dt>address</dt>
        <dd>{service.addresses.join(', ') || 'none'}</dd>
        {service.externalAddresses.length > 0 && (
          <>
            <dt>outside</dt>
            <dd>{service.externalAddresses.join(', ')}</dd>
          </>
        )}
        <dt>ports</dt>
        <dd>{service.ports.join(', ') || 'none'}</dd>
      </dl>
      <p class="actions">
        <a
          class="button"
          href={viewLink({ page: 'path', from: client, to: `svc/${service.name}`, family: 'any' })}
        >
          Path of a packet
        </a>
      </p>
      <h2>Endpoints</h2>
      {service.endpoints.length === 0 ? (
        <p class="quiet">
          {service.isOnNodes
            ? 'None: each node answers itself, for its own pods.'
            : service.hasSelector
              ? 'None: no pod has the labels of the selector.'
              : 'None: the Service has no selector, and no EndpointSlice was written for it.'}
        </p>
      ) : (
        <ul class="plain-list">
          {service.endpoints.slice(0, MAX_ENDPOINTS).map(({ addresses, pod, node, state }) => (
            <li key={addresses[0]}>
              <span class={state === 'not-ready' ? 'bad' : 'good'}>{state === 'not-ready' ? '○' : '●'}</span>{' '}
              {pod === null ? addresses.join(', ') : baseName(pod)}
              <span class="quiet">
                {' '}
                {pod === null ? '' : addresses.join(', ')}
                {node === null ? '' : ` on ${node}`}
                {state === 'ready' ? '' : `, ${state.replace('-', ' ')}`}
              </span>{' '}
              {pod !== null && (
                <a
                  href={viewLink({ page: 'shell', pod, container: null })}
                  aria-label={`Shell in ${baseName(pod)}`}
                >
                  shell
                </a>
              )}
            </li>
          ))}
        </ul>
      )}
      {service.endpoints.length > MAX_ENDPOINTS && (
        <p class="quiet">
          and {(service.endpoints.length - MAX_ENDPOINTS).toLocaleString('en')} more:{' '}
          <code>kubectl describe endpointslice</code> lists all
        </p>
      )}
    </>
  );
}

function Nodes({ data }: { data: ClusterData }) {
  return (
    <>
      <h2>Nodes</h2>
      {data.nodes.size === 0 ? (
        <p class="quiet">None yet: an agent registers its node when it starts.</p>
      ) : (
        <ul class="plain-list">
          {[...data.nodes.values()].map(({ name, isReady, isDrained, mode, addresses }) => (
            <li key={name}>
              <span class={isReady ? 'good' : 'bad'}>{isReady ? '●' : '○'}</span> {name}
              <span class="quiet">
                {' '}
                {mode ?? data.cluster?.mode}, {addresses[0]}
                {isReady ? '' : ', not ready'}
                {isDrained ? ', drained' : ''}
              </span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
