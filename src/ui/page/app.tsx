import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { type ClusterData, followCluster, NO_DATA } from './cluster-store.ts';
import { FaultsPage } from './faults.tsx';
import { LessonsPage } from './lessons.tsx';
import { HOME, parseView, type View, viewLink } from './link-state.ts';
import { MapPage } from './map.tsx';
import { ModesPage } from './modes.tsx';
import { PathPage } from './path.tsx';
import {
  applyPreferences,
  isDark,
  isMotionAllowed,
  type Preferences,
  readPreferences,
} from './preferences.ts';
import { ShellPage } from './shell.tsx';

const TABS: readonly { readonly view: View; readonly label: string }[] = [
  { view: HOME, label: 'Map' },
  { view: { page: 'path', from: '', to: '', family: 'any' }, label: 'Path' },
  { view: { page: 'shell', pod: null, container: null }, label: 'Shell' },
  { view: { page: 'modes', service: null }, label: 'Modes' },
  { view: { page: 'faults' }, label: 'Faults' },
  { view: { page: 'lessons', lesson: null }, label: 'Lessons' },
];
const THEMES = ['system', 'light', 'dark'] as const;

/** The whole page: its head with the search, and one view below. */
export function App() {
  const [data, setData] = useState<ClusterData>(NO_DATA);
  const [view, setView] = useState<View>(() => parseView(location.hash));
  const [preferences, setPreferences] = useState<Preferences>(readPreferences);
  useEffect(() => followCluster(setData), []);
  useEffect(() => applyPreferences(preferences), [preferences]);
  useEffect(() => {
    const onHash = () => setView(parseView(location.hash));
    addEventListener('hashchange', onHash);
    return () => removeEventListener('hashchange', onHash);
  }, []);
  const show = useCallback((next: View) => {
    location.hash = viewLink(next);
  }, []);
  const moves = isMotionAllowed(preferences);
  useEffect(() => {
    document.title = `${data.cluster === null ? '' : `${data.cluster.name} · `}Fairlead`;
  }, [data.cluster]);
  return (
    <>
      <header>
        <h1>
          Fairlead <span class="quiet">{data.cluster?.name ?? ''}</span>
        </h1>
        <Search view={view} show={show} />
        <nav class="tabs" aria-label="Views">
          {TABS.map(({ view: to, label }) => (
            <a key={label} href={viewLink(to)} aria-current={to.page === view.page ? 'page' : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <div class="settings">
          <button
            type="button"
            aria-pressed={moves}
            onClick={() => setPreferences({ ...preferences, motion: !moves })}
          >
            Motion
          </button>
          <button
            type="button"
            title="Theme: as the desktop, light or dark"
            onClick={() => setPreferences({ ...preferences, theme: nextTheme(preferences.theme) })}
          >
            {preferences.theme === 'system' ? 'Auto' : preferences.theme === 'dark' ? 'Dark' : 'Light'}
          </button>
        </div>
      </header>
      <Notices data={data} />
      <main>
        {view.page === 'map' && <MapPage data={data} view={view} show={show} moves={moves} />}
        {view.page === 'path' && <PathPage data={data} view={view} show={show} moves={moves} />}
        {view.page === 'shell' && (
          <ShellPage data={data} view={view} show={show} isDark={isDark(preferences)} />
        )}
        {view.page === 'modes' && <ModesPage data={data} service={view.service} show={show} />}
        {view.page === 'faults' && <FaultsPage data={data} />}
        {view.page === 'unknown' && <UnknownPage name={view.name} />}
        {view.page === 'lessons' && <LessonsPage lesson={view.lesson} show={show} />}
      </main>
    </>
  );
}

const nextTheme = (theme: Preferences['theme']): Preferences['theme'] =>
  THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? 'system';

/** In a terminal too, whose input is a text area. */
const isTyping = ({ target }: Event): boolean =>
  target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement;

function Search({ view, show }: { view: View; show: (view: View) => void }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== '/' || isTyping(event)) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return (
    <search>
      <input
        ref={input}
        type="search"
        placeholder="Search names, addresses, ports  ( / )"
        aria-label="Search Services, pods, addresses and ports"
        value={view.page === 'map' ? view.search : ''}
        onInput={({ currentTarget }) => show({ ...HOME, search: currentTarget.value })}
      />
    </search>
  );
}

function UnknownPage({ name }: { name: string }) {
  return (
    <section class="card" aria-label="Unknown view">
      <p role="alert" class="bad">
        ✕ The page has no view “{name}”: the link is incomplete, or of another version.
      </p>
      <p class="actions">
        <a class="button" href={viewLink(HOME)}>
          Show the map
        </a>
      </p>
    </section>
  );
}

function Notices({ data }: { data: ClusterData }) {
  const isLost = data.connection === 'lost';
  if (!isLost && data.notices.length === 0) return null;
  return (
    <div class="notices" role="status">
      {isLost && (
        <p>
          The connection to “fairlead ui” is lost. The page reconnects by itself while the command runs; if it
          has ended, start it again and open the address that it prints.
        </p>
      )}
      {!isLost && data.notices.map((notice) => <p key={notice}>{notice}</p>)}
    </div>
  );
}
