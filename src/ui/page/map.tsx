import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import type { ClusterData } from './cluster-store.ts';
import { countText, rateText } from './format.ts';
import { HOME, type MapView, type View, viewLink } from './link-state.ts';
import { MapDetails } from './map-details.tsx';
import { curveText, type PlacedLink, type PlacedRow, placeMap, ROW_HEIGHT } from './map-geometry.ts';
import { chooseRows, type RowTarget } from './map-rows.ts';
import { Motion } from './motion.tsx';
import { useSlots } from './slots.ts';
import { Staggered, useDelayed } from './staggered.tsx';
import { suggestTraffic } from './suggested-request.ts';
import { useWidth } from './use-width.ts';
import { isFailure, VERDICTS } from './verdicts.ts';

const FIRST_LIMIT = 40;
const ZOOMS = [0.6, 0.8, 1, 1.25, 1.5] as const;
const USUAL_ZOOM = 2;
/** Pixels that a row needs for a name and rates. */
const RATE_WIDTH = 170;

/** The map: clients, Services and endpoints with the traffic between them. */
export function MapPage({
  data,
  view,
  show,
  moves,
}: {
  data: ClusterData;
  view: MapView;
  show: (view: View) => void;
  moves: boolean;
}) {
  const [limit, setLimit] = useState(FIRST_LIMIT);
  const [zoom, setZoom] = useState(USUAL_ZOOM);
  const [frame, width] = useWidth();
  const scale = ZOOMS[zoom] ?? 1;
  const { services, pods, traffic } = data;
  const asked = useMemo(
    () => ({ ...view, services, pods, traffic, limit }),
    [view, services, pods, traffic, limit],
  );
  // In the frame after the key or the event: those need their own.
  const question = useDelayed(asked, 1);
  const rows = useMemo(() => chooseRows(question), [question]);
  const geometry = useMemo(() => placeMap(rows, Math.floor(width / scale)), [rows, width, scale]);
  const hasEmptyColumn = [rows.clients, rows.services, rows.endpoints].some(({ length }) => length === 0);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === '+' || event.key === '=') setZoom((now) => Math.min(ZOOMS.length - 1, now + 1));
      else if (event.key === '-') setZoom((now) => Math.max(0, now - 1));
      else if (event.key === '0') setZoom(USUAL_ZOOM);
      else if (event.key === 'Escape') show(outer(view));
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [view, show]);
  const open = useCallback(
    (target: RowTarget) => {
      if (target.kind === 'namespace') show({ ...HOME, namespace: target.name });
      if (target.kind === 'service')
        show({ ...view, service: view.service === target.name ? null : target.name });
      if (target.kind === 'search') show({ ...HOME, search: target.text });
    },
    [view, show],
  );
  const columns = useMemo(
    () => geometry.columns.map(({ rows }) => ({ rows, open, chosen: view.service })),
    [geometry, open, view.service],
  );
  const details = useMemo(() => ({ data, view, edges: rows.edges, show }), [data, view, rows, show]);
  return (
    <div class="map-page">
      <section class="map-area" aria-label="Map of the cluster">
        <MapBar view={view} data={data} zoom={zoom} setZoom={setZoom} />
        <div class="map-frame" ref={frame}>
          <div
            class={hasEmptyColumn ? 'map with-empty' : 'map'}
            style={{
              width: `${geometry.width}px`,
              height: `${Math.max(geometry.height, ROW_HEIGHT)}px`,
              transform: `scale(${scale})`,
              marginBottom: `${(scale - 1) * geometry.height}px`,
            }}
          >
            <Staggered value={geometry} frames={4} draw={(geometry) => <Links {...geometry} />} />
            {moves && <Motion links={geometry.links} width={geometry.width} scale={scale} view={view} />}
            {columns.map((column, i) => (
              <Staggered key={i} value={column} frames={1 + i} draw={(column) => <Rows {...column} />} />
            ))}
            <EmptyColumns data={data} view={view} rows={rows} columns={geometry.columns} />
          </div>
        </div>
        {rows.hiddenServices > 0 && (
          <p class="more">
            {rows.hiddenServices.toLocaleString('en')} quiet Services are not shown.{' '}
            <button type="button" onClick={() => setLimit(limit * 2)}>
              Show more
            </button>
          </p>
        )}
        <Legend />
      </section>
      <Staggered value={details} frames={5} draw={(details) => <MapDetails {...details} />} />
    </div>
  );
}

const isTyping = ({ target }: Event): boolean =>
  target instanceof HTMLInputElement ||
  target instanceof HTMLSelectElement ||
  target instanceof HTMLTextAreaElement;

/** The view that contains this one: a Service's namespace, and that of a namespace the cluster. */
function outer(view: MapView): View {
  if (view.service !== null) return { ...view, service: null };
  return HOME;
}

function MapBar({
  view,
  data,
  zoom,
  setZoom,
}: {
  view: MapView;
  data: ClusterData;
  zoom: number;
  setZoom: (zoom: number) => void;
}) {
  const { traffic } = data;
  return (
    <div class="bar">
      <nav class="crumbs" aria-label="Part of the cluster">
        <a href={viewLink(HOME)}>{data.cluster?.name ?? 'cluster'}</a>
        {view.namespace !== null && (
          <a href={viewLink({ ...HOME, namespace: view.namespace })}>{view.namespace}</a>
        )}
        {view.service !== null && <a href={viewLink(view)}>{view.service}</a>}
        {view.search !== '' && <span>“{view.search}”</span>}
      </nav>
      <p class="totals">
        <span>{countText(data.nodes.size, 'node')}</span>
        <span>{countText(data.services.size, 'Service')}</span>
        <span class="figure">{rateText(traffic.total)}</span>
      </p>
      <fieldset class="zoom" aria-label="Zoom">
        <button
          type="button"
          aria-label="Zoom out"
          disabled={zoom === 0}
          onClick={() => setZoom(Math.max(0, zoom - 1))}
        >
          −
        </button>
        <button
          type="button"
          aria-label="Zoom in"
          disabled={zoom === ZOOMS.length - 1}
          onClick={() => setZoom(Math.min(ZOOMS.length - 1, zoom + 1))}
        >
          +
        </button>
      </fieldset>
    </div>
  );
}

function Rows({
  rows,
  chosen,
  open,
}: {
  rows: readonly PlacedRow[];
  chosen: string | null;
  open: (target: RowTarget) => void;
}) {
  const slotOf = useSlots(rows.map(({ row }) => row.id));
  return (
    <>
      {rows.map((placed) => (
        <Row
          key={slotOf(placed.row.id)}
          placed={placed}
          isChosen={placed.row.target.kind === 'service' && placed.row.target.name === chosen}
          open={open}
        />
      ))}
    </>
  );
}

function Row({
  placed: { row, x, y, width },
  isChosen,
  open,
}: {
  placed: PlacedRow;
  isChosen: boolean;
  open: (target: RowTarget) => void;
}) {
  const failing = row.failed >= 0.05;
  const classes = ['row', isChosen ? 'chosen' : '', row.isUsable ? '' : 'unusable', failing ? 'failing' : '']
    .filter((name) => name !== '')
    .join(' ');
  const title = [
    row.label,
    row.detail,
    row.rate > 0 ? rateText(row.rate) : '',
    failing ? `${rateText(row.failed)} fails` : '',
  ]
    .filter((part) => part !== '')
    .join(', ');
  return (
    <>
      {row.heading !== null && (
        <p
          class="heading"
          title={row.heading}
          style={{ left: `${x}px`, top: `${y - 22}px`, width: `${width}px` }}
        >
          {width < RATE_WIDTH ? row.heading.replace(/^namespace /, '') : row.heading}
        </p>
      )}
      <button
        type="button"
        class={classes}
        title={title}
        aria-pressed={isChosen}
        disabled={row.target.kind === 'none'}
        style={{ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${ROW_HEIGHT}px` }}
        onClick={() => open(row.target)}
      >
        <span class="name">
          <Label text={row.label} />
          <span class="detail">{row.detail}</span>
        </span>
        {/* The name comes first: where both do not fit, the title has the rates. */}
        {width < RATE_WIDTH
          ? failing && <span class="bad">✕</span>
          : row.rate > 0 && (
              <span class="rate">
                {failing && <span class="bad">✕ {rateText(row.failed)}</span>} {rateText(row.rate)}
              </span>
            )}
      </button>
    </>
  );
}

/** Shows a name. If it does not fit, its end stays visible, which distinguishes the pods of a Service. */
function Label({ text }: { text: string }) {
  const dash = text.lastIndexOf('-');
  const end = dash > 0 ? dash : text.length;
  return (
    <span class="label">
      <span class="start">{text.slice(0, end)}</span>
      <span>{text.slice(end)}</span>
    </span>
  );
}

function Links({ links, width, height }: { links: readonly PlacedLink[]; width: number; height: number }) {
  const slotOf = useSlots(links.map(({ link }) => link.id));
  return (
    <svg class="links" width={width} height={height} aria-hidden="true">
      {links.map(({ link, curve, thickness }) => (
        <path
          key={slotOf(link.id)}
          d={curveText(curve)}
          class={isFailure(link.verdict) ? 'link bad' : 'link good'}
          stroke-width={thickness}
          stroke-dasharray={VERDICTS[link.verdict].dashes ?? undefined}
        />
      ))}
    </svg>
  );
}

/** Says why a column is empty, and what to do. */
function EmptyColumns({
  data,
  view,
  rows,
  columns,
}: {
  data: ClusterData;
  view: MapView;
  rows: { clients: readonly unknown[]; services: readonly unknown[]; endpoints: readonly unknown[] };
  columns: readonly { x: number; width: number }[];
}) {
  const { connection, cluster, traffic } = data;
  const command = cluster?.command ?? 'fairlead';
  const at = (i: number) => ({ left: `${columns[i]?.x ?? 0}px`, width: `${columns[i]?.width ?? 0}px` });
  const client = [...data.pods.values()].find(
    ({ phase, isHostNetwork }) => phase === 'Running' && !isHostNetwork,
  );
  const suggested = suggestTraffic(data.services.values(), view.service);
  const chosen = view.service === null ? undefined : data.services.get(view.service);
  return (
    <>
      {rows.clients.length === 0 && (
        <div class="empty" style={at(0)}>
          {connection !== 'open' || cluster === null ? (
            <p>Reading the cluster…</p>
          ) : traffic.ticks < 2 ? (
            <p>Waiting for traffic…</p>
          ) : (
            <>
              <p>No client here: no connection was opened in the last 10 seconds.</p>
              {suggested === null || !client ? (
                <>
                  <p>Start an example:</p>
                  <code>{command} up -f examples/hello.yaml</code>
                </>
              ) : suggested.url === null ? (
                <>
                  <p>Use a client of the Service’s protocol, or send a packet:</p>
                  <code>{`${command} trace ${client.name} ${suggested.target}`}</code>
                </>
              ) : (
                <>
                  <p>Send some requests:</p>
                  <code>{`${command} exec ${client.name} -- fairlead request ${suggested.url} --count 300`}</code>
                </>
              )}
            </>
          )}
        </div>
      )}
      {rows.services.length === 0 && cluster !== null && (
        <div class="empty" style={at(1)}>
          {view.search !== '' ? (
            <>
              <p>No Service has “{view.search}” in its name, addresses, ports or endpoints.</p>
              <a href={viewLink(HOME)}>Show all Services</a>
            </>
          ) : view.service !== null ? (
            <>
              <p>
                The Service {view.service} does not exist: it was deleted, or the link is of another cluster.
              </p>
              <a href={viewLink(HOME)}>Show all Services</a>
            </>
          ) : (
            <>
              <p>
                {view.namespace === null ? 'The cluster' : `The namespace ${view.namespace}`} has no Services.
              </p>
              <code>{command} up -f examples/hello.yaml</code>
            </>
          )}
        </div>
      )}
      {rows.endpoints.length === 0 && rows.services.length > 0 && (
        <div class="empty" style={at(2)}>
          <p>
            {chosen?.isOnNodes
              ? 'Each node answers for this Service itself, without endpoints.'
              : chosen
                ? 'The Service has no endpoints: no running pod has the labels of its selector.'
                : 'Endpoints appear here with their first traffic. Choose a namespace to see all of them.'}
          </p>
          {chosen?.isOnNodes === false && <code>kubectl get pods --show-labels</code>}
        </div>
      )}
    </>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      {Object.values(VERDICTS).map(({ mark, word, dashes }) => (
        <li key={word}>
          <svg width="34" height="10" aria-hidden="true">
            <path
              d="M1 5H33"
              class={word === 'delivered' || word === 'sent' ? 'link good' : 'link bad'}
              stroke-width="2"
              stroke-dasharray={dashes ?? undefined}
            />
          </svg>
          <span aria-hidden="true">{mark}</span> {word}
        </li>
      ))}
    </ul>
  );
}
