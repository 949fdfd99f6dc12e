/** The pages /statusz and /flagz: those of the components of Kubernetes 1.36 (k8s.io/component-base/zpages). */
export interface ZpageSource {
  /** The name of the program. Default: "fairlead". */
  readonly component?: string;
  /** "v1.36.0": the version of Kubernetes whose components this program replaces. */
  readonly version: string;
  /** Milliseconds. */
  readonly startedAt: number;
  readonly now: number;
  /** The paths of the port. */
  readonly paths: readonly string[];
  /** Whether /statusz is among the paths that it shows: that of kube-apiserver is. */
  readonly listsItself?: boolean;
  /** The command line's flags by name. */
  readonly flags: Readonly<Record<string, string>>;
}

export interface ZpageAnswer {
  readonly code: number;
  readonly type: string;
  readonly body: string;
}

const COMPONENT = 'fairlead';
const GROUP = 'config.k8s.io';
const VERSIONS: readonly string[] = ['v1alpha1', 'v1beta1'];
const WARNING =
  'Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.';

/** Returns the page for a request's Accept header: text, or an object of the group config.k8s.io in JSON or YAML. */
export async function zpage(
  kind: 'Statusz' | 'Flagz',
  source: ZpageSource,
  accept: string | undefined,
): Promise<ZpageAnswer> {
  const form = negotiate(kind, accept);
  if (form === null) return notAcceptable();
  if (form === 'text') {
    const body = kind === 'Statusz' ? statuszText(source) : flagzText(source);
    return { code: 200, type: 'text/plain; charset=utf-8', body };
  }
  const { encoding, version } = form;
  const object = {
    kind,
    apiVersion: `${GROUP}/${version}`,
    metadata: { name: source.component ?? COMPONENT },
    ...(kind === 'Statusz' ? statuszFields(source) : { flags: sorted(source.flags) }),
  };
  const type = `application/${encoding};g=${GROUP};v=${version};as=${kind}`;
  if (encoding === 'json') return { code: 200, type, body: `${JSON.stringify(object, null, 2)}\n` };
  const { stringify } = await import('yaml');
  return { code: 200, type, body: stringify(object, { sortMapEntries: true }) };
}

type Form = 'text' | { readonly encoding: 'json' | 'yaml'; readonly version: string };

/** Chooses the acceptable form with the highest q; the first of several, and null if there is none. */
function negotiate(kind: string, accept: string | undefined): Form | null {
  if (accept === undefined || accept.trim() === '') return 'text';
  const clauses = accept.split(',').map((clause) => {
    const [type = '', ...pairs] = clause.split(';').map((part) => part.trim());
    const parameters = new Map(
      pairs.map((pair): [string, string] => {
        const [name = '', value = ''] = pair.split('=', 2);
        return [name.trim().toLowerCase(), value.trim()];
      }),
    );
    const quality = Number(parameters.get('q') ?? 1);
    return { type: type.toLowerCase(), parameters, quality: Number.isNaN(quality) ? 0 : quality };
  });
  for (const { type, parameters, quality } of clauses.toSorted((a, b) => b.quality - a.quality)) {
    if (quality <= 0) continue;
    if (type === 'text/plain' || type === 'text/*' || type === '*/*') return 'text';
    const encoding = /^application\/(json|yaml)$/.exec(type)?.[1];
    const version = parameters.get('v') ?? '';
    const isThis = parameters.get('g') === GROUP && parameters.get('as') === kind;
    if (encoding && isThis && VERSIONS.includes(version))
      return { encoding: encoding === 'json' ? 'json' : 'yaml', version };
  }
  return null;
}

function notAcceptable(): ZpageAnswer {
  const status = {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: 'only the following media types are accepted: application/json, application/yaml, text/plain',
    reason: 'NotAcceptable',
    code: 406,
  };
  return { code: 406, type: 'application/json', body: `${JSON.stringify(status, null, 2)}\n` };
}

const shownPaths = ({ paths, listsItself = false }: ZpageSource): string[] =>
  paths.filter((path) => listsItself || path !== '/statusz').toSorted();
const plainVersion = (version: string): string => version.replace(/^v/, '');
const minorVersion = (version: string): string => /[0-9]+\.[0-9]+/.exec(version)?.[0] ?? '';

function statuszFields(source: ZpageSource): object {
  const { version, startedAt, now } = source;
  return {
    startTime: new Date(startedAt).toISOString().replace(/\.\d+Z$/, 'Z'),
    uptimeSeconds: Math.floor((now - startedAt) / 1000),
    // The field is required; this program has no Go.
    goVersion: `Node.js ${process.version}`,
    binaryVersion: plainVersion(version),
    emulationVersion: minorVersion(version),
    paths: shownPaths(source),
  };
}

function statuszText(source: ZpageSource): string {
  const { component = COMPONENT, version, startedAt, now } = source;
  const seconds = Math.floor((now - startedAt) / 1000);
  const two = (number: number) => String(number).padStart(2, '0');
  return [
    `\n${component} statusz`,
    `${WARNING}\n`,
    `Started  ${unixDate(startedAt)}`,
    `Up  ${Math.floor(seconds / 3600)} hr ${two(Math.floor(seconds / 60) % 60)} min ${two(seconds % 60)} sec`,
    `Node.js version  ${process.version}`,
    `Binary version  ${plainVersion(version)}`,
    `Emulation version  ${minorVersion(version)}`,
    `Paths  ${shownPaths(source).join(' ')}\n`,
  ].join('\n');
}

function flagzText({ component = COMPONENT, flags }: ZpageSource): string {
  const lines = Object.entries(sorted(flags)).map(([name, value]) => `${name} ${value}\n`);
  return `\n${component} flagz\n${WARNING}\n${lines.join('')}`;
}

const sorted = (flags: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(flags).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Returns "Thu Nov 26 08:35:08 UTC 2026". */
function unixDate(at: number): string {
  const [, weekday, day = '', month, year, time] =
    /^(\w+), (\d+) (\w+) (\d+) (\S+) GMT$/.exec(new Date(at).toUTCString()) ?? [];
  return `${weekday} ${month} ${day.replace(/^0/, ' ')} ${time} UTC ${year}`;
}
