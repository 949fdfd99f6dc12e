/** The state of the page as the fragment of its address: a link to a view can be sent and stored. */
export type View =
  | {
      readonly page: 'map';
      readonly namespace: string | null;
      readonly service: string | null;
      readonly search: string;
    }
  | {
      readonly page: 'path';
      readonly from: string;
      readonly to: string;
      readonly family: 'any' | 'ipv4' | 'ipv6';
    }
  | { readonly page: 'shell'; readonly pod: string | null; readonly container: string | null }
  | { readonly page: 'modes'; readonly service: string | null }
  | { readonly page: 'faults' }
  | { readonly page: 'lessons'; readonly lesson: string | null }
  /** The link is wrong, or of another version of the page. */
  | { readonly page: 'unknown'; readonly name: string };

export type MapView = Extract<View, { readonly page: 'map' }>;

export const HOME: MapView = { page: 'map', namespace: null, service: null, search: '' };

const MAX_NAME = 60;

/** Reads a fragment: "#map?ns=shop"; without one, the map. Unknown keys are left out. */
export function parseView(fragment: string): View {
  const [, page = '', rest = ''] = /^#?([^?]*)\??(.*)$/s.exec(fragment) ?? [];
  const query = new URLSearchParams(rest);
  switch (page) {
    case 'path': {
      const family = query.get('family');
      return {
        page,
        from: query.get('from') ?? '',
        to: query.get('to') ?? '',
        family: family === 'ipv4' || family === 'ipv6' ? family : 'any',
      };
    }
    case 'shell':
      return { page, pod: query.get('pod'), container: query.get('container') };
    case 'modes':
      return { page, service: query.get('service') };
    case 'faults':
      return { page };
    case 'lessons':
      return { page, lesson: query.get('lesson') };
    case '':
    case 'map':
      return {
        page: 'map',
        namespace: query.get('ns'),
        service: query.get('service'),
        search: query.get('q') ?? '',
      };
    default:
      return { page: 'unknown', name: page.slice(0, MAX_NAME) };
  }
}

/** Renders the fragment of a view; `parseView` reads it. */
export function viewLink(view: View): string {
  const query = new URLSearchParams();
  const put = (key: string, value: string | null) => {
    if (value !== null && value !== '') query.set(key, value);
  };
  switch (view.page) {
    case 'map':
      put('ns', view.namespace);
      put('service', view.service);
      put('q', view.search);
      break;
    case 'path':
      put('from', view.from);
      put('to', view.to);
      put('family', view.family === 'any' ? null : view.family);
      break;
    case 'shell':
      put('pod', view.pod);
      put('container', view.container);
      break;
    case 'modes':
      put('service', view.service);
      break;
    case 'lessons':
      put('lesson', view.lesson);
      break;
    case 'unknown':
      return `#${view.name}`;
    case 'faults':
      break;
  }
  const text = query.toString();
  return `#${view.page}${text === '' ? '' : `?${text}`}`;
}
